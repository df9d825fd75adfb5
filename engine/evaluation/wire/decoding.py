"""Decodes the events of callers: in the body of an evaluation, in a batch, and as lines.

The decoder holds the interpreter until it returns. So each event of a body is decoded by itself, and others
get their turn in between.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from sys import float_info
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from engine.evaluation.events.intake import TIMESTAMP_MS_MAX
from engine.evaluation.facts.values import Event
from engine.evaluation.wire.bodies import (
    LOOKED_THROUGH_BYTES,
    check_count,
    check_weight,
    decode,
    has_digits,
    unreadable,
    without_collector,
)
from engine.evaluation.wire.msgpack_bodies import (
    check_msgpack,
    check_packed_weight,
    decode_msgpack,
    unpackable,
)
from engine.evaluation.wire.numbers import SCANNED_BYTES, are_costly
from engine.evaluation.wire.violations import MORE_DEFECTS, VIOLATIONS_MAX, shape_refusal
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

T = TypeVar("T")

WHOLE_BYTES_MAX: Final = 1 << 18
"""A body up to this takes the decoder 30 ms at worst, and mostly one."""
PORTION_BYTES: Final = 1 << 16
"""About the size of the portions of longer bodies, if their events are of one size."""


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """One event: its fields, and its time in milliseconds since 1970, precise to a microsecond."""

    fields: dict[str, Any]
    timestamp_ms: int | float


class ContextBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a caller sends beside the event: values for names with `$`, and relations."""

    vars: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class EvaluateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an evaluation."""

    event: EventBody
    context: ContextBody | msgspec.UnsetType = msgspec.UNSET


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a batch: events in order, all with the same context."""

    events: list[EventBody]
    context: ContextBody | msgspec.UnsetType = msgspec.UNSET


_Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]


_Scalar = str | int | _Finite | bool | None


class _FlatEvent(EventBody):
    """An event whose fields are finite scalars and whose time is in range: decoding alone tells."""

    fields: dict[str, _Scalar]
    timestamp_ms: (
        Annotated[int, msgspec.Meta(ge=-int(TIMESTAMP_MS_MAX), le=int(TIMESTAMP_MS_MAX))]
        | Annotated[float, msgspec.Meta(ge=-TIMESTAMP_MS_MAX, le=TIMESTAMP_MS_MAX)]
    )


class _FlatEvaluate(EvaluateBody):
    """The body of an evaluation with a flat event and nothing else. Most bodies are such."""

    event: _FlatEvent
    context: msgspec.UnsetType = msgspec.UNSET


class _FlatContext(ContextBody):
    """Scalars and relations."""

    vars: dict[str, _Scalar | list[_Scalar | list[_Scalar]]] | msgspec.UnsetType = msgspec.UNSET


class _FlatBatch(BatchBody):
    """A batch of flat events."""

    events: list[_FlatEvent]  # type: ignore[assignment]  # nobody adds other events
    context: _FlatContext | msgspec.UnsetType = msgspec.UNSET


class _Flat(NamedTuple):
    """Decodes texts with flat events only. Most are such, and need few checks."""

    decoder: Any
    depth: int
    """How deep a text nests."""
    is_json: bool = True

    def decode(self, text: bytes, limits: Limits) -> Any:
        """Return the value of a text, or None if it holds more than flat events, or may be past a limit."""
        size = len(text)
        if limits.body_depth_max < self.depth or size > limits.event_values_max:
            return None
        # Less has no room for anything that takes long.
        if size >= SCANNED_BYTES or size > limits.digits_max:
            if size > WHOLE_BYTES_MAX:
                return None
            if self.is_json and (has_digits(text, limits.digits_max) or are_costly(text)):
                return None
        try:
            return self.decoder.decode(text)
        except (ValueError, RecursionError):
            return None


BatchForm = Literal["json", "msgpack"]
"""The format of the body of a batch."""


class _Form(NamedTuple):
    """How the bodies of batches are decoded."""

    members: Any
    events: Any
    """Decoders of the outline of a batch."""
    flat: _Flat
    decode: Callable[..., Any]
    check: Callable[[bytes, Limits], None]
    check_weight: Callable[[bytes, int, str], None]
    unreadable: Callable[[bytes, Exception], Refusal]
    joined: Callable[[list[msgspec.Raw]], bytes]
    """Gives the body of a batch of some events."""


def _form(of: Any, *functions: Any) -> _Form:
    outline = of.Decoder(dict[str, msgspec.Raw]), of.Decoder(list[msgspec.Raw])
    return _Form(*outline, _Flat(of.Decoder(_FlatBatch), 5, of is msgspec.json), *functions)


_FORMS: Final = {
    "json": _form(
        msgspec.json,
        decode,
        lambda body, limits: check_count(body, limits.body_values_max),
        check_weight,
        unreadable,
        lambda events: b'{"events":[' + b",".join(events) + b"]}",
    ),
    "msgpack": _form(
        msgspec.msgpack,
        decode_msgpack,
        check_msgpack,
        check_packed_weight,
        lambda _, error: unpackable(error),
        lambda events: b"\x81\xa6events\xdd" + len(events).to_bytes(4) + b"".join(events),
    ),
}
_FLAT_EVALUATE: Final = _Flat(msgspec.json.Decoder(_FlatEvaluate), 3)
_FLAT_EVENT: Final = _Flat(msgspec.json.Decoder(_FlatEvent), 2)

_WRONG_SHAPE: Final = 1001

BLANKS: Final = b" \t\r"

_BODY: Final = re.compile(r"(?<=^the )body\b|^body(?=:)")
"""What the decoder calls a line."""

_EVENT_ALONE: Final = re.compile(rb'[ \t\r]*\{[ \t\r]*"(?:fields|timestamp_ms)"')
"""Matches the beginning of a line that is an event alone."""


def decode_evaluate(body: bytes, limits: Limits) -> EvaluateBody:
    """Decode the body of an evaluation. Raises Refusal 1000, or 1001 with every violation."""
    check_count(body, limits.body_values_max)
    flat: EvaluateBody | None = _FLAT_EVALUATE.decode(body, limits)
    if flat is not None:
        return flat
    decoded = decode(body, EvaluateBody, limits)
    check_times([decoded.event], lambda _: "event.")
    return decoded


def decode_event(body: bytes, limits: Limits) -> EventBody:
    """Decode an event that stands alone. Raises Refusal 1000, or 1001 with every violation."""
    check_count(body, limits.body_values_max)
    flat: EventBody | None = _FLAT_EVENT.decode(body, limits)
    if flat is not None:
        return flat
    decoded = decode(body, EventBody, limits)
    check_times([decoded], lambda _: "")
    return decoded


def check_times(events: list[EventBody], place: Callable[[int], str]) -> None:
    """Raise Refusal 1001 with every timestamp out of range; `place` gives what precedes its name."""
    wild = [
        Entry(1001, f"{place(index)}timestamp_ms: expected a number from -8.64e15 to 8.64e15")
        for index, event in enumerate(events)
        if abs(event.timestamp_ms) > TIMESTAMP_MS_MAX
    ]
    if wild:
        raise Refusal(*wild[:VIOLATIONS_MAX])


def event_in(body: EvaluateBody) -> tuple[dict[str, Any], float, dict[str, Any]]:
    """Return the arguments with which a detector evaluates the event of a body."""
    return body.event.fields, body.event.timestamp_ms, _sent_with(body.context)


def events_in(body: BatchBody) -> list[Event]:
    """Return the same for each event of a batch."""
    sent = _sent_with(body.context)
    return [(event.fields, event.timestamp_ms, sent) for event in body.events]


def _sent_with(context: ContextBody | msgspec.UnsetType) -> dict[str, Any]:
    """Return the vars of a context, or an empty dict."""
    if isinstance(context, ContextBody) and isinstance(context.vars, dict):
        return context.vars
    return {}


# -- batches ------------------------------------------------------------------------------------------------


def decode_batch(
    body: bytes, limits: Limits, form: BatchForm = "json", between: Callable[[], None] = lambda: None
) -> BatchBody:
    """Decode the body of a batch. Raises Refusal 1000, or 1001 with every violation.

    A long body is decoded in portions, and `between` is called after each.
    """
    decoding = _FORMS[form]
    decoding.check(body, limits)
    with without_collector(body):
        if _is_long(body, limits):
            return _LongBatch(body, limits, decoding).decoded(between)
        return _decode_at_once(body, limits, decoding)


def _is_long(body: bytes, limits: Limits) -> bool:
    return len(body) > min(WHOLE_BYTES_MAX, limits.event_values_max)


def _decode_at_once(body: bytes, limits: Limits, form: _Form) -> BatchBody:
    decoded: BatchBody | None = form.flat.decode(body, limits)
    if decoded is None:
        decoded = form.decode(body, BatchBody, limits)
        check_times(decoded.events, lambda index: f"events[{index}].")
    return decoded


class _LongBatch:
    """The parts of a long batch, and what is wrong with their shapes."""

    def __init__(self, body: bytes, limits: Limits, form: _Form) -> None:
        self._body, self._limits, self._form = body, limits, form
        self._violations: list[Entry] = []

    def decoded(self, between: Callable[[], None]) -> BatchBody:
        """Return the batch. Raises Refusal."""
        texts, context = self._outline()
        batch = BatchBody([])
        if context is not None:
            batch.context = self._part(context, ContextBody, "context", 1) or msgspec.UNSET
        # Most events have about the same size; looking at each would take a third as long as decoding.
        step = max(1, len(texts) * PORTION_BYTES // len(self._body))
        for first in range(0, len(texts), step):
            portion = texts[first : first + step]
            together = self._together(portion)
            if together is None:
                # One by one, each is bounded by itself, and what is wrong is told with its place.
                for index, text in enumerate(portion, first):
                    event = self._part(text, EventBody, f"events[{index}]", 2)
                    batch.events += [] if event is None else [event]
                    between()
            else:
                batch.events += together
                between()
        if wrong := self._violations:
            raise Refusal(*wrong[:VIOLATIONS_MAX], *[MORE_DEFECTS][: len(wrong) > VIOLATIONS_MAX])
        return batch

    def _outline(self) -> tuple[list[msgspec.Raw], msgspec.Raw | None]:
        """Return the texts of the events and of the context; notes what is wrong beside these."""
        try:
            members = self._form.members.decode(self._body)
        except msgspec.ValidationError:
            # It is no object.
            self._form.decode(self._body, BatchBody, self._limits)
            raise
        except (ValueError, RecursionError) as error:
            raise self._form.unreadable(self._body, error) from None
        context = members.pop("context", None)
        document: dict[str, object] = {} if context is None else {"context": {}}
        texts: list[msgspec.Raw] = []
        with suppress(KeyError, msgspec.ValidationError):
            texts = self._form.events.decode(members["events"])
            document["events"] = []
            del members["events"]
        if members or "events" not in document:
            for name, text in members.items():
                document[name] = self._form.decode(bytes(text), object, self._limits)
            self._violations += shape_refusal(document, BatchBody, "").entries
        return texts, context

    def _together(self, texts: list[msgspec.Raw]) -> list[EventBody] | None:
        """Decode some events at once; None if they take long, or something is wrong."""
        body = self._form.joined(texts)
        if _is_long(body, self._limits):
            return None
        try:
            return _decode_at_once(body, self._limits, self._form).events
        except Refusal:
            return None

    def _part(self, text: msgspec.Raw, type_: type[T], place: str, around: int) -> T | None:
        """Decode a part; notes what is wrong with its shape. Raises Refusal 1000."""
        try:
            self._form.check_weight(bytes(text), self._limits.event_values_max, place)
            value: T = self._form.decode(bytes(text), type_, self._limits, place, around)
            if isinstance(value, EventBody):
                check_times([value], lambda _: f"{place}.")
        except Refusal as refusal:
            if refusal.entries[0].code != _WRONG_SHAPE:
                raise self._of_whole(refusal) from None
            # What is no JSON in the parts after this one comes first.
            if len(self._violations) <= VIOLATIONS_MAX:
                self._violations += refusal.entries
            return None
        return value

    def _of_whole(self, refusal: Refusal) -> Refusal:
        """Return the refusal of a part as one of the whole body, of which it may name a byte."""
        if self._form.decode is not decode:
            return refusal
        try:
            self._body.decode()
            if len(self._body) <= LOOKED_THROUGH_BYTES:
                msgspec.json.decode(self._body)
        except (ValueError, RecursionError) as error:
            return unreadable(self._body, error)
        return refusal


# -- lines --------------------------------------------------------------------------------------------------


def decode_lines(
    body: bytes, limits: Limits, between: Callable[[], None] = lambda: None
) -> list[EvaluateBody | Refusal]:
    """Decode each line that is not blank: the body of an evaluation, or its event alone.

    A line that is invalid gives a Refusal. `between` is called after each PORTION_BYTES.
    """
    decoded: list[EvaluateBody | Refusal] = []
    size = 0
    for line in body.split(b"\n"):
        if line.strip(BLANKS):
            decoded.append(_decode_line(line, limits))
        size += len(line)
        if size > PORTION_BYTES:
            size = 0
            between()
    return decoded


def _decode_line(line: bytes, limits: Limits) -> EvaluateBody | Refusal:
    try:
        if _EVENT_ALONE.match(line):
            return EvaluateBody(decode_event(line, limits))
        return decode_evaluate(line, limits)
    except Refusal as refusal:
        return Refusal(*[Entry(entry.code, _BODY.sub("line", entry.message)) for entry in refusal.entries])
