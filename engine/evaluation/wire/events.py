"""The bodies of evaluations and batches, and their answers as JSON."""

from collections.abc import Callable, Sequence
from functools import partial
from sys import float_info
from typing import Annotated, Any, Final, assert_never

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.events.intake import TIMESTAMP_MS_MAX
from engine.evaluation.facts.values import Event
from engine.evaluation.wire.bodies import (
    LARGE_BYTES,
    check_count,
    check_digits,
    check_weight,
    containers_in,
    decode,
    decode_counted,
    unreadable,
    without_collector,
)
from engine.evaluation.wire.msgpack_bodies import decode_msgpack, named_values
from engine.evaluation.wire.numbers import are_costly
from engine.evaluation.wire.portions import BatchForm, is_long, placed, portions_of
from engine.evaluation.wire.results import encode_actions, encode_entries, no_room, results_within
from engine.evaluation.wire.violations import MORE_DEFECTS, VIOLATIONS_MAX
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits


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


_DROPPED_TOGETHER: Final = 100
_WRONG_SHAPE: Final = 1001

_Finite = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]


class FlatEvent(EventBody):
    """An event whose fields are finite scalars and whose time is in range: decoding alone tells."""

    fields: dict[str, str | int | _Finite | bool | None]
    timestamp_ms: (
        Annotated[int, msgspec.Meta(ge=-int(TIMESTAMP_MS_MAX), le=int(TIMESTAMP_MS_MAX))]
        | Annotated[float, msgspec.Meta(ge=-TIMESTAMP_MS_MAX, le=TIMESTAMP_MS_MAX)]
    )


class FlatEvaluate(EvaluateBody):
    """The body of an evaluation with a flat event and nothing else. Most bodies are such."""

    event: FlatEvent
    context: msgspec.UnsetType = msgspec.UNSET


FLAT_EVALUATE_DEPTH: Final = 3
"""The depth of such a body: an object with an event, which is an object with an object."""

FLAT_EVALUATE: Final = msgspec.json.Decoder(FlatEvaluate)
FLAT_EVENT: Final = msgspec.json.Decoder(FlatEvent)


class _FlatBatch(BatchBody):
    """A batch of such events."""

    events: list[FlatEvent]  # type: ignore[assignment]  # nobody adds other events


class _PlainBatch(_FlatBatch):
    """A batch of such events and nothing else. With UnsetType alone, any context would be decoded first."""

    context: msgspec.UnsetType | None = msgspec.UNSET  # type: ignore[assignment]  # None is not plain


_NAMED: Final = named_values(4)
"""The values of most events. The type has twice the size for each level."""


class _NamedEvent(EventBody):
    fields: dict[str, _NAMED]  # type: ignore[valid-type]  # mypy does not know the value of the type


class _NamedContext(ContextBody):
    vars: dict[str, _NAMED] | msgspec.UnsetType = msgspec.UNSET  # type: ignore[valid-type]  # as above


class _NamedBatch(BatchBody):
    """A batch in which no value nests deep. All members have strings as names: decoding alone tells."""

    events: list[_NamedEvent]  # type: ignore[assignment]  # nobody adds other events
    context: _NamedContext | msgspec.UnsetType = msgspec.UNSET


_FLAT_BATCH_DEPTH: Final = 4
"""The depth of a batch of flat events: an object with an array of events, each an object with an object."""


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a request that succeeded: its result and its messages as JSON."""

    result: bytes
    messages: bytes = b"[]"


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a refused request. It has changed nothing."""

    entries: tuple[Entry, ...]


Answer = Done | Refused


def decode_evaluate(body: bytes, limits: Limits) -> EvaluateBody:
    """Decode the body of an evaluation. Raises Refusal 1000, or 1001 with every violation."""
    if len(body) < LARGE_BYTES and limits.body_depth_max >= FLAT_EVALUATE_DEPTH and not are_costly(body):
        # What `decode` does besides takes longer than decoding such a body.
        check_count(body, limits.body_values_max)
        check_weight(body, limits.event_values_max, "the body")
        try:
            flat = FLAT_EVALUATE.decode(body)
        except (ValueError, RecursionError):
            pass
        else:
            check_digits(body, limits.digits_max)
            return flat
    decoded = decode(body, EvaluateBody, limits)
    if abs(decoded.event.timestamp_ms) > TIMESTAMP_MS_MAX:
        check_timestamps([decoded.event], lambda _: "event.")
    return decoded


def decode_event(body: bytes, limits: Limits) -> EventBody:
    """Decode an event that stands alone. Raises Refusal 1000, or 1001 with every violation."""
    decoded = decode(body, EventBody, limits)
    check_timestamps([decoded], lambda _: "")
    return decoded


def decode_batch(
    body: bytes, limits: Limits, form: BatchForm = "json", between: Callable[[], None] = lambda: None
) -> BatchBody:
    """Decode the body of a batch. Raises Refusal 1000, or 1001 with every violation.

    A long body is decoded in portions, and `between` is called after each.
    """
    if not is_long(body, limits):
        check_count(body, limits.body_values_max)
        return _decode_at_once(body, limits, form)
    decoded = BatchBody([])
    violations: list[Entry] = []
    with without_collector(body):
        for first, portion in portions_of(body, BatchBody, limits, form):
            try:
                part = _decode_at_once(portion, limits, form)
            except Refusal as refusal:
                if refusal.entries[0].code != _WRONG_SHAPE:
                    raise (_of_whole(refusal, portion, body) if form == "json" else refusal) from None
                # What is no JSON in the portions after this one comes first.
                violations += placed(refusal.entries, first)
                continue
            decoded.events += part.events
            if part.context is not msgspec.UNSET:
                decoded.context = part.context
            between()
    if violations:
        raise Refusal(*violations[:VIOLATIONS_MAX], *[MORE_DEFECTS][: len(violations) > VIOLATIONS_MAX])
    return decoded


def _of_whole(refusal: Refusal, portion: bytes, body: bytes) -> Refusal:
    """Return the refusal of a portion of JSON as one of the whole body, of which it may name a byte."""
    try:
        portion.decode()
    except UnicodeDecodeError as error:
        return unreadable(body, error)
    return refusal


def _decode_at_once(body: bytes, limits: Limits, form: BatchForm) -> BatchBody:
    match form:
        case "json":
            decoded = decode_counted(
                body, BatchBody, limits, narrow=_FlatBatch, nesting_at_most=_nesting_at_most
            )
        case "msgpack":
            is_plain = partial(_is_plain, depth_max=limits.body_depth_max)
            decoded = decode_msgpack(
                body, BatchBody, limits, plain=(_PlainBatch, is_plain), named=_NamedBatch
            )
        case _:
            assert_never(form)
    if not isinstance(decoded, _FlatBatch):
        check_timestamps(decoded.events, lambda index: f"events[{index}].")
    return decoded


def _nesting_at_most(batch: BatchBody, body: bytes) -> int:
    """Bound the depth of a batch: each event has at least two objects, which nest with no other event's."""
    if isinstance(batch, _FlatBatch) and batch.context is msgspec.UNSET:
        return _FLAT_BATCH_DEPTH
    return containers_in(body) - 2 * max(0, len(batch.events) - 1)


def _is_plain(batch: BatchBody, depth_max: int) -> bool:
    """Return whether a batch of flat events has no context, and may nest as deep as flat events do."""
    return batch.context is msgspec.UNSET and depth_max >= _FLAT_BATCH_DEPTH


def evaluate_body(detector: Detector, body: bytes) -> Answer:
    """Evaluate the event of a body and give the answer."""
    try:
        outcome = detector.submit_clean_one(*event_in(decode_evaluate(body, detector.limits)))
    except Refusal as refusal:
        return Refused(refusal.entries)
    finally:
        detector.forget_lookups()
    return Done(b'{"actions":' + encode_actions(outcome.fired) + b"}", encode_entries(outcome.messages))


def evaluate_batch_body(
    detector: Detector, body: bytes, form: BatchForm = "json", between: Callable[[], None] = lambda: None
) -> tuple[Answer, tuple[int, ...]]:
    """Evaluate the events of a body in order. A refused event has an error as its result; the others go on.

    Gives the answer, and the indices of the refused events. These include the events that were not evaluated
    because the answer was full. `between` is called between the portions in which a long batch is done.
    """
    # If the collector ran before the events are gone, it would look through all of them.
    with without_collector(body):
        try:
            events = events_in(decode_batch(body, detector.limits, form, between))
        except Refusal as refusal:
            return Refused(refusal.entries), ()
        answered = evaluate_batch(detector, events, between)
        drop(events)
    return answered


def drop(events: list[Any]) -> None:
    """Free events a few at a time: all of a long batch at once would hold the interpreter for long."""
    while events:
        del events[-_DROPPED_TOGETHER:]


def evaluate_batch(
    detector: Detector, events: Sequence[Event], between: Callable[[], None] = lambda: None
) -> tuple[Answer, tuple[int, ...]]:
    """Evaluate events that consist of JSON values in order; see `evaluate_batch_body`."""
    count, most = len(events), detector.limits.batch_events_max
    if count > most:
        return Refused((Entry(1400, f"the batch has {count} events, at most {most} are accepted"),)), ()
    results, refused = results_within(detector, events, between)
    if len(results) < count:
        refused = (*refused, *range(len(results), count))
        detector.refused[1400] += count - len(results)
        results += [no_room(detector.limits.answer_bytes_max)] * (count - len(results))
    return Done(b'{"results":[' + b",".join(results) + b"]}"), refused


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


def check_timestamps(events: list[EventBody], place: Callable[[int], str]) -> None:
    """Raise Refusal 1001 with every timestamp out of range; `place` gives what precedes its name."""
    wild = [
        Entry(1001, f"{place(index)}timestamp_ms: expected a number from -8.64e15 to 8.64e15")
        for index, event in enumerate(events)
        if abs(event.timestamp_ms) > TIMESTAMP_MS_MAX
    ]
    if wild:
        raise Refusal(*wild[:VIOLATIONS_MAX])
