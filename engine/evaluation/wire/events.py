"""Evaluates the events of bodies, and gives the answers as JSON."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.facts.values import Event
from engine.evaluation.rules import actions_json
from engine.evaluation.wire.batches import BatchForm, decode_batch
from engine.evaluation.wire.bodies import without_collector
from engine.evaluation.wire.decoding import decode_evaluate, decode_lines, event_in, events_in
from engine.evaluation.wire.results import (
    encode_entries,
    encode_firings,
    no_room,
    results_within,
)
from engine.language.diagnostics import Entry, Refusal

_DROPPED_TOGETHER: Final = 100


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a request that succeeded: its result and its messages as JSON."""

    result: bytes
    messages: bytes = b"[]"
    changes: bytes = b""
    """What it has changed, for the changes log of the service; empty if there is nothing to log."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a refused request. It has changed nothing."""

    entries: tuple[Entry, ...]


Answer = Done | Refused


def evaluate_body(detector: Detector, body: bytes) -> Answer:
    """Evaluate the event of a body and give the answer."""
    try:
        outcome = detector.submit_clean_one(*event_in(decode_evaluate(body, detector.limits)))
    except Refusal as refusal:
        return Refused(refusal.entries)
    finally:
        detector.forget_lookups()
    messages = encode_entries(outcome.messages) if outcome.messages else b"[]"
    return Done(b'{"actions":' + actions_json(outcome.fired) + b"}", messages)


def tick(detector: Detector, time_us: int, between: Callable[[], None]) -> Done:
    """Move a detector's clock, and give the answer. Raises Refusal 1402. See `Detector.tick`."""
    most = detector.limits.answer_bytes_max
    actions, without_room = encode_firings(detector.tick(time_us, between), most)
    said = f"{without_room} actions had no room in the response, whose limit is {most} bytes"
    messages = [Entry(2008, said)] if without_room else []
    return Done(b'{"actions":' + actions + b"}", encode_entries(messages))


def evaluate_batch_body(
    detector: Detector,
    body: bytes,
    form: BatchForm = "json",
    between: Callable[[], None] = lambda: None,
    *,
    detailed: bool = False,
) -> tuple[Answer, tuple[int, ...]]:
    """Evaluate the events of a body in order. A refused event has an error as its result; the others go on.

    Gives the answer, and the indices of the refused events. These include the events that were not evaluated
    because the answer was full. `between` is called from time to time between two events.
    """
    # If the collector ran before the events are gone, it would look through all of them.
    with without_collector(body):
        try:
            events = events_in(decode_batch(body, detector.limits, form, between))
        except Refusal as refusal:
            return Refused(refusal.entries), ()
        answered = evaluate_batch(detector, events, between, detailed=detailed)
        _drop(events)
    return answered


def evaluate_batch(
    detector: Detector,
    events: Sequence[Event],
    between: Callable[[], None] = lambda: None,
    *,
    detailed: bool = False,
) -> tuple[Answer, tuple[int, ...]]:
    """Evaluate events that consist of JSON values in order; see `evaluate_batch_body`."""
    count, most = len(events), detector.limits.batch_events_max
    if count > most:
        return Refused((Entry(1400, f"the batch has {count} events, at most {most} are accepted"),)), ()
    results, refused = results_within(detector, events, between, detailed=detailed)
    if len(results) < count:
        refused = (*refused, *range(len(results), count))
        detector.refused[1400] += count - len(results)
        results += [no_room(detector.limits.answer_bytes_max)] * (count - len(results))
    return Done(b'{"results":[' + b",".join(results) + b"]}"), refused


def evaluate_lines(
    detector: Detector, body: bytes, between: Callable[[], None] = lambda: None
) -> tuple[Done, tuple[int, ...]]:
    """Evaluate the events of a body in order. A refused event has an error as its result; the others go on.

    Gives the results as lines, and the indices of the refused events. Blank lines do not count. If the answer
    is full, there are fewer results than events. The remaining events were not evaluated, count as refused,
    and may be sent again. `between` is called from time to time between two events.
    """
    with without_collector(body):
        lines = decode_lines(body, detector.limits, between)
        events = [line if isinstance(line, Refusal) else event_in(line) for line in lines]
        count = len(lines)
        _drop(lines)
        results, refused = results_within(detector, events, between)
        _drop(events)
    return Done(b"\n".join(results)), (*refused, *range(len(results), count))


def _drop(events: list[Any]) -> None:
    """Free events a few at a time: all of a long batch at once would hold the interpreter for long."""
    while events:
        del events[-_DROPPED_TOGETHER:]
