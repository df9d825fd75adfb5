"""Evaluate bodies and their answers: decoded where they are evaluated, encoded where the outcome is known."""

from collections.abc import Callable
from typing import Any, Final, Literal, assert_never

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.wire.bodies import DEFECTS_MAX, decode
from engine.evaluation.wire.msgpack_bodies import decode_msgpack
from engine.evaluation.wire.results import encode_actions, encode_entries, no_room, results_within
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

TIMESTAMP_MS_MAX: Final = 8.64e15
"""Either way; what a calendar date can be, in ECMAScript and here."""


BatchForm = Literal["json", "msgpack"]
"""What the body of a batch is written in."""


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """One event: its fields, and its time in milliseconds since 1970, held to the microsecond."""

    fields: dict[str, Any]
    timestamp_ms: int | float


class ContextBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a caller knows besides the event: values for names that begin with `$`, and relations."""

    vars: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class EvaluateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an evaluation."""

    event: EventBody
    context: ContextBody | msgspec.UnsetType = msgspec.UNSET


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a batch: events in order, all with the same context."""

    events: list[EventBody]
    context: ContextBody | msgspec.UnsetType = msgspec.UNSET


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request that succeeded: its result and its messages, as JSON ready for the envelope."""

    result: bytes
    messages: bytes = b"[]"


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request that was refused; nothing has changed."""

    entries: tuple[Entry, ...]


Answer = Done | Refused


def decode_evaluate(body: bytes, limits: Limits) -> EvaluateBody:
    """Give an evaluate body. Raises Refusal 1000 or 1001 with every defect."""
    decoded = decode(
        body,
        EvaluateBody,
        depth_max=limits.body_depth_max,
        digits_max=limits.digits_max,
        values_max=limits.body_values_max,
    )
    _check_timestamps([decoded.event], lambda _: "event")
    return decoded


def decode_batch(body: bytes, limits: Limits, form: BatchForm = "json") -> BatchBody:
    """Give a batch body. Raises Refusal 1000, or 1001 with every defect."""
    match form:
        case "json":
            decoded = decode(
                body,
                BatchBody,
                depth_max=limits.body_depth_max,
                digits_max=limits.digits_max,
                values_max=limits.body_values_max,
                nesting_at_most=_nesting_at_most,
            )
        case "msgpack":
            decoded = decode_msgpack(
                body, BatchBody, depth_max=limits.body_depth_max, values_max=limits.body_values_max
            )
        case _:
            assert_never(form)
    _check_timestamps(decoded.events, lambda index: f"events[{index}]")
    return decoded


def _nesting_at_most(batch: BatchBody, containers: int) -> int:
    """Bound the depth of a batch: no value lies in two events, and each event has two objects at least."""
    return containers - 2 * max(0, len(batch.events) - 1)


def evaluate_body(detector: Detector, body: bytes) -> Answer:
    """Evaluate the event of a body and give the answer to its caller."""
    try:
        decoded = decode_evaluate(body, detector.limits)
        outcome = detector.submit_clean_one(
            decoded.event.fields, decoded.event.timestamp_ms, sent_with(decoded.context)
        )
    except Refusal as refusal:
        return Refused(refusal.entries)
    finally:
        detector.forget_lookups()
    return Done(b'{"actions":' + encode_actions(outcome.fired) + b"}", encode_entries(outcome.messages))


def evaluate_batch_body(
    detector: Detector, body: bytes, form: BatchForm = "json"
) -> tuple[Answer, tuple[int, ...]]:
    """Evaluate the events of a body in order; a refused one says so in its place, and the others go on.

    Gives the answer to the caller, and the places of the events that were refused, those not evaluated for
    want of room in the answer among them.
    """
    try:
        decoded = decode_batch(body, detector.limits, form)
    except Refusal as refusal:
        return Refused(refusal.entries), ()
    count, most = len(decoded.events), detector.limits.batch_events_max
    if count > most:
        return Refused((Entry(1400, f"the batch has {count} events, at most {most} are accepted"),)), ()
    sent = sent_with(decoded.context)
    results, refused = results_within(
        detector, [(event.fields, event.timestamp_ms, sent) for event in decoded.events]
    )
    if len(results) < count:
        refused = (*refused, *range(len(results), count))
        results += [no_room(detector.limits.answer_bytes_max)] * (count - len(results))
    return Done(b'{"results":[' + b",".join(results) + b"]}"), refused


def sent_with(context: ContextBody | msgspec.UnsetType) -> dict[str, Any]:
    """Give the vars that a body's context brings, none where there is none."""
    if isinstance(context, ContextBody) and isinstance(context.vars, dict):
        return context.vars
    return {}


def _check_timestamps(events: list[EventBody], place: Callable[[int], str]) -> None:
    stamps = [event.timestamp_ms for event in events]
    if not stamps or -TIMESTAMP_MS_MAX <= min(stamps) <= max(stamps) <= TIMESTAMP_MS_MAX:
        return
    wild = [
        Entry(1001, f"{place(index)}.timestamp_ms: expected a number from -8.64e15 to 8.64e15")
        for index, stamp in enumerate(stamps)
        if not -TIMESTAMP_MS_MAX <= stamp <= TIMESTAMP_MS_MAX
    ]
    raise Refusal(*wild[:DEFECTS_MAX])
