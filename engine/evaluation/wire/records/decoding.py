"""Finds the records of a body, and makes events of them."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from engine.evaluation.facts.values import Event
from engine.evaluation.wire.bodies import check_count, decode, decode_lines, without_collector
from engine.evaluation.wire.decoding import PORTION_BYTES, EventBody, check_times, of_part
from engine.evaluation.wire.records.times import time_in
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

T = TypeVar("T")

_LINE: Final = re.compile(rb"[^ \t\r\n][^\n]*")
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Ingest(msgspec.Struct, frozen=True, array_like=True):
    """A body of records, and what is asked about them."""

    body: bytes
    """A JSON object, an array of objects, or an object a line."""
    time: str | None = None
    """The field with the time of a record; by default, it is that of its arrival."""
    are_events: bool = False
    """Whether the objects are not records, but events: each has `fields` and `timestamp_ms`. If all of these
    are refused, they are counted, and the body is not refused."""
    with_results: bool = False
    """Whether the answer has the actions of each record."""


def events_of(
    given: Ingest, now_us: int, limits: Limits, between: Callable[[], None] = lambda: None
) -> list[Event | Refusal]:
    """Return the event of each record in a body, in its order, or why there is none.

    `now_us` is the time of arrival. `between` is called from time to time. Raises Refusal 1400 if there are
    too many records, and 1000 if the body holds too much.
    """
    body = given.body
    with without_collector(body):
        check_count(body, limits.body_values_max)
        texts = [*islice(_texts(body), limits.batch_events_max + 1)]
        if len(texts) > limits.batch_events_max:
            raise Refusal(Entry(1400, f"the body has more than {limits.batch_events_max} records"))
        events: list[Event | Refusal] = []
        step = max(1, len(texts) * PORTION_BYTES // max(1, len(body)))
        for first in range(0, len(texts), step):
            portion = texts[first : first + step]
            events += (
                _sent(portion, limits) if given.are_events else _made(portion, given.time, now_us, limits)
            )
            between()
        return events


def _texts(body: bytes) -> Iterator[bytes]:
    """Yield the texts of the records, each of which has no line feed if it is JSON."""
    lines = (found[0] for found in _LINE.finditer(body))
    first = next(lines, b"")
    if first[:1] == b"[":
        try:
            # In what is JSON, a line feed is a blank.
            yield from (bytes(text).replace(b"\n", b" ") for text in _ELEMENTS.decode(body))
        except (ValueError, RecursionError):
            pass
        else:
            return
    elif first and not _is_json(first) and _is_json(body):
        # One object over several lines.
        yield body.replace(b"\n", b" ")
        return
    if first:
        yield first
    yield from lines


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def _made(texts: Sequence[bytes], time: str | None, now_us: int, limits: Limits) -> Iterator[Event | Refusal]:
    """Yield the events of which some texts are the fields."""
    now_ms = now_us / 1_000
    time_ms = (lambda _: now_ms) if time is None else time_in(time)
    for record in _decoded(texts, dict[str, Any], limits):
        if isinstance(record, Refusal):
            yield record
            continue
        try:
            yield record, time_ms(record), {}
        except Refusal as refusal:
            yield refusal


def _sent(texts: Sequence[bytes], limits: Limits) -> Iterator[Event | Refusal]:
    """Yield the events that some texts are."""
    for event in _decoded(texts, EventBody, limits):
        try:
            if isinstance(event, Refusal):
                raise event
            check_times([event], lambda _: "")
        except Refusal as refusal:
            yield refusal
        else:
            yield event.fields, event.timestamp_ms, {}


def _decoded(texts: Sequence[bytes], type_: type[T], limits: Limits) -> Sequence[T | Refusal]:
    together = decode_lines(b"\n".join(texts), type_, len(texts), limits)
    return together or [_alone(text, type_, limits) for text in texts]


def _alone(text: bytes, type_: type[T], limits: Limits) -> T | Refusal:
    try:
        return decode(text, type_, limits)
    except Refusal as refusal:
        return of_part("record", refusal)
