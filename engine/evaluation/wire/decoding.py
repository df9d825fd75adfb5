"""Decodes events of callers: the bodies of evaluations, and lines."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from engine.evaluation.facts.values import Event
from engine.evaluation.stamps import LATEST_US
from engine.evaluation.wire.bodies import decode
from engine.language.diagnostics import Entry, Refusal
from engine.language.durations import microseconds
from engine.language.limits import Limits

PORTION_BYTES: Final = 1 << 16
"""The approximate size of the portions of longer bodies, if their events have equal sizes."""

BLANKS: Final = b" \t\r"

_BODY: Final = re.compile(r"(?<=^the )body\b|^body(?=:)")
"""Matches the decoder's name for a part that is decoded by itself."""

_EVENT_ALONE: Final = re.compile(rb'[ \t\r]*\{[ \t\r]*"(?:fields|timestamp_ms)"')
"""Matches the beginning of a line with only an event."""

_MS_MAX: Final = LATEST_US // 1_000
_IN_RANGE: Final = msgspec.Meta(
    ge=-_MS_MAX, le=_MS_MAX, extra={"expected": "a number from -8.64e15 to 8.64e15"}
)
_Timestamp = Annotated[int, _IN_RANGE] | Annotated[float, _IN_RANGE]


class EventBody(msgspec.Struct, forbid_unknown_fields=True):
    """One event: its fields, and its time in milliseconds since 1970, precise to a microsecond."""

    fields: dict[str, Any]
    timestamp_ms: _Timestamp


class ContextBody(msgspec.Struct, forbid_unknown_fields=True):
    """The context of an event: values for names with `$`, and relations."""

    vars: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class EvaluateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of an evaluation."""

    event: EventBody
    context: ContextBody | msgspec.UnsetType = msgspec.UNSET


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a batch: events in order, all with the same context."""

    events: list[EventBody]
    context: ContextBody | msgspec.UnsetType = msgspec.UNSET


class TickBody(msgspec.Struct, forbid_unknown_fields=True):
    """The time to which a tick moves the clock, in milliseconds since 1970, precise to a microsecond."""

    timestamp_ms: _Timestamp


def decode_tick(body: bytes, limits: Limits) -> int:
    """Return the time of a tick in microseconds. Raises Refusal 1000, or 1001 with every violation."""
    return microseconds(decode(body, TickBody, limits).timestamp_ms, 1_000)


def decode_evaluate(body: bytes, limits: Limits) -> EvaluateBody:
    """Decode the body of an evaluation. Raises Refusal 1000, or 1001 with every violation."""
    return decode(body, EvaluateBody, limits)


def decode_event(body: bytes, limits: Limits) -> EventBody:
    """Decode an event that stands alone. Raises Refusal 1000, or 1001 with every violation."""
    return decode(body, EventBody, limits)


def event_in(body: EvaluateBody) -> tuple[dict[str, Any], float, dict[str, Any]]:
    """Return the event of a body as arguments for a detector."""
    return body.event.fields, body.event.timestamp_ms, _sent_with(body.context)


def events_in(body: BatchBody) -> list[Event]:
    """Return the events of a batch, with its context."""
    sent = _sent_with(body.context)
    return [(event.fields, event.timestamp_ms, sent) for event in body.events]


def _sent_with(context: ContextBody | msgspec.UnsetType) -> dict[str, Any]:
    """Return the vars of a context, or an empty dict."""
    if isinstance(context, ContextBody) and isinstance(context.vars, dict):
        return context.vars
    return {}


def decode_lines(
    body: bytes, limits: Limits, between: Callable[[], None] = lambda: None
) -> list[EvaluateBody | Refusal]:
    """Decode each non-blank line: the body of an evaluation, or only its event.

    An invalid line becomes a Refusal. `between` is called after each PORTION_BYTES.
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
        return of_part("line", refusal)


def of_part(kind: str, refusal: Refusal) -> Refusal:
    """Return a refusal with messages about a part of that kind, such as a line, instead of the body."""
    return Refusal(*[Entry(entry.code, _BODY.sub(kind, entry.message)) for entry in refusal.entries])
