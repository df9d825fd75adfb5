"""Decodes the bodies of batches, as JSON and as msgpack.

The decoder holds the interpreter until it returns. So a long body is decoded in portions, with turns for
other threads in between.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import suppress
from sys import float_info
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from engine.evaluation.wire.bodies import (
    AT_ONCE_BYTES_MAX,
    LOOKED_THROUGH_BYTES,
    check_count,
    check_weight,
    decode,
    unreadable,
    without_collector,
)
from engine.evaluation.wire.decoding import PORTION_BYTES, BatchBody, ContextBody, EventBody
from engine.evaluation.wire.msgpack_bodies import (
    check_msgpack,
    check_packed_weight,
    decode_msgpack,
    unpackable,
)
from engine.evaluation.wire.violations import MORE_DEFECTS, VIOLATIONS_MAX, shape_refusal
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

T = TypeVar("T")

BatchForm = Literal["json", "msgpack"]
"""The format of the body of a batch."""

_Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]
_Scalar = str | int | _Finite | bool | None


class _FlatEvent(EventBody):
    """An event whose fields are finite scalars."""

    fields: dict[str, _Scalar]


class _FlatContext(ContextBody):
    """Scalars and relations."""

    vars: dict[str, _Scalar | list[_Scalar | list[_Scalar]]] | msgspec.UnsetType = msgspec.UNSET


class _FlatBatch(BatchBody):
    """A batch of flat events, like most batches. One that decodes as this needs no checks."""

    events: list[_FlatEvent]  # type: ignore[assignment]  # nobody adds other events
    context: _FlatContext | msgspec.UnsetType = msgspec.UNSET


_FLAT_BATCH: Final = msgspec.msgpack.Decoder(_FlatBatch)
_FLAT_BATCH_DEPTH: Final = 5


class _Events(msgspec.Struct):
    events: list[msgspec.Raw]


def count_events(body: bytes, form: BatchForm) -> int:
    """Return the number of events in a batch, without decoding them; 1 if it cannot be read."""
    try:
        found = (msgspec.json if form == "json" else msgspec.msgpack).decode(body, type=_Events)
    except (ValueError, RecursionError):
        return 1
    return len(found.events)


def count_records(body: bytes) -> int:
    """Return the number of plain records in a body, without decoding them: its lines, if it is not JSON."""
    with suppress(ValueError, RecursionError):
        text = body.removeprefix(BOM_UTF8)
        found = msgspec.json.decode(text, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
        return len(found) if isinstance(found, list) else 1
    return max(1, sum(bool(line.strip()) for line in body.split(b"\n")))


def _json_batch(body: bytes, limits: Limits) -> BatchBody:
    # Each event has at least two objects, which add nothing to the depth of other events.
    return decode(body, BatchBody, limits, apart=lambda batch: 2 * max(0, len(batch.events) - 1))


def _msgpack_batch(body: bytes, limits: Limits) -> BatchBody:
    if limits.body_depth_max >= _FLAT_BATCH_DEPTH:
        with suppress(ValueError, RecursionError):
            return _FLAT_BATCH.decode(body)
    return decode_msgpack(body, BatchBody, limits)


class _Members(msgspec.Struct):
    """The raw events and context of a batch."""

    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    context: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Outline(_Members, forbid_unknown_fields=True):
    """A batch without unknown members."""


_GOT: Final = re.compile("got `(.*)`")
_STAND_INS: Final[dict[str, object]] = {
    "array": [],
    "object": {},
    "str": "",
    "int": 0,
    "float": 0.5,
    "bool": True,
    "null": None,
    "None": None,
}
_UNKNOWN: Final = re.compile("unknown field `(.*)`", re.DOTALL)


class _Form(NamedTuple):
    """How the bodies of batches are decoded."""

    outline: Any
    members: Any
    events: Any
    """The decoders of these three."""
    check: Callable[[bytes, Limits], None]
    check_weight: Callable[[bytes, int, str], None]
    batch: Callable[[bytes, Limits], BatchBody]
    part: Callable[..., Any]
    unreadable: Callable[[bytes, Exception], Refusal]
    joined: Callable[[list[msgspec.Raw]], bytes]
    """Returns the body of a batch of some events."""


_FORMS: Final = {
    "json": _Form(
        msgspec.json.Decoder(_Outline),
        msgspec.json.Decoder(_Members),
        msgspec.json.Decoder(list[msgspec.Raw]),
        lambda body, limits: check_count(body, limits.body_values_max),
        check_weight,
        _json_batch,
        decode,
        unreadable,
        lambda events: b'{"events":[' + b",".join(events) + b"]}",
    ),
    "msgpack": _Form(
        msgspec.msgpack.Decoder(_Outline),
        msgspec.msgpack.Decoder(_Members),
        msgspec.msgpack.Decoder(list[msgspec.Raw]),
        check_msgpack,
        check_packed_weight,
        _msgpack_batch,
        decode_msgpack,
        lambda _, error: unpackable(error),
        lambda events: b"\x81\xa6events\xdd" + len(events).to_bytes(4) + b"".join(events),
    ),
}

_WRONG_SHAPE: Final = 1001


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
        return decoding.batch(body, limits)


def _is_long(body: bytes, limits: Limits) -> bool:
    return len(body) > min(AT_ONCE_BYTES_MAX, limits.event_values_max)


class _LongBatch:
    """The parts of a long batch, and the violations of their types."""

    def __init__(self, body: bytes, limits: Limits, form: _Form) -> None:
        self._body, self._limits, self._form = body, limits, form
        self._violations: list[Entry] = []

    def decoded(self, between: Callable[[], None]) -> BatchBody:
        """Return the batch. Raises Refusal."""
        texts, context = self._outline()
        batch = BatchBody([])
        if context is not None:
            batch.context = self._part(context, ContextBody, "context", 1) or msgspec.UNSET
        # Most events have about the same size; measuring each would take a third as long as decoding.
        step = max(1, len(texts) * PORTION_BYTES // len(self._body))
        for first in range(0, len(texts), step):
            portion = texts[first : first + step]
            together = self._together(portion)
            if together is None:
                # One by one, each event has a bound of its own, and violations have its place.
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
        """Return the raw events and context, and record violations of other members."""
        form, body, document = self._form, self._body, dict[str, object]()
        try:
            try:
                members = form.outline.decode(body)
            except msgspec.ValidationError as error:
                # There may be very many unknown members; report one.
                unknown = _UNKNOWN.search(str(error))
                document |= {unknown[1]: None} if unknown else {}
                members = form.members.decode(body)
        except msgspec.ValidationError as error:
            raise shape_refusal(self._instead_of(body, error), BatchBody, str(error)) from None
        except (ValueError, RecursionError) as error:
            raise form.unreadable(body, error) from None
        texts: list[msgspec.Raw] | None = None
        if isinstance(members.events, msgspec.Raw):
            try:
                texts = form.events.decode(members.events)
                document["events"] = []
            except msgspec.ValidationError as error:
                document["events"] = self._instead_of(members.events, error)
        if texts is None or len(document) > 1:
            self._violations += shape_refusal(document, BatchBody, "").entries
        return texts or [], None if members.context is msgspec.UNSET else members.context

    def _together(self, texts: list[msgspec.Raw]) -> list[EventBody] | None:
        """Decode some events at once; None if they may take long, or one is invalid."""
        body = self._form.joined(texts)
        if _is_long(body, self._limits):
            return None
        try:
            return self._form.batch(body, self._limits).events
        except Refusal:
            return None

    def _part(self, text: msgspec.Raw, type_: type[T], place: str, around: int) -> T | None:
        """Decode a part, and record violations of its type. Raises Refusal 1000."""
        try:
            if len(self._violations) > VIOLATIONS_MAX:
                # No more violations are reported, but text that is not JSON takes precedence.
                self._decode(text, object, place, around)
                return None
            return self._decode(text, type_, place, around)
        except Refusal as refusal:
            if refusal.entries[0].code != _WRONG_SHAPE:
                raise self._of_whole(refusal) from None
            self._violations += refusal.entries
            return None

    def _instead_of(self, text: bytes | msgspec.Raw, error: msgspec.ValidationError) -> object:
        """Return a small value of the type in the decoder's error. Raises Refusal 1000."""
        found = _GOT.search(str(error))
        if found is None or found[1] not in _STAND_INS:
            return self._decode(text, object)
        return _STAND_INS[found[1]]

    def _decode(self, text: bytes | msgspec.Raw, type_: type[T], place: str = "", around: int = 0) -> T:
        self._form.check_weight(bytes(text), self._limits.event_values_max, place)
        return self._form.part(bytes(text), type_, self._limits, place, around)  # type: ignore[no-any-return]

    def _of_whole(self, refusal: Refusal) -> Refusal:
        """Convert the refusal of a part to one of the whole body, whose bytes it may number."""
        if self._form.part is not decode:
            return refusal
        try:
            self._body.decode()
            if len(self._body) <= LOOKED_THROUGH_BYTES:
                msgspec.json.decode(self._body)
        except (ValueError, RecursionError) as error:
            return unreadable(self._body, error)
        return refusal
