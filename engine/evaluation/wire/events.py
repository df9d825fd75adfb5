"""Evaluates the events of bodies, and returns answers as JSON of bounded size.

The maximum size of an event's result is known before its evaluation: every enabled rule fires, and every
message applies. So every evaluated event gets its result, and no more is held in memory than is answered.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.events.outcomes import Outcomes
from engine.evaluation.explanation.firings import Firings, evaluate_explained
from engine.evaluation.facts.shown import shown
from engine.evaluation.facts.values import Event
from engine.evaluation.rules import actions_json
from engine.evaluation.timed.timing import FiredByTime
from engine.evaluation.times import milliseconds
from engine.evaluation.wire.batches import BatchForm, decode_batch
from engine.evaluation.wire.bodies import without_collector
from engine.evaluation.wire.decoding import decode_evaluate, decode_lines, event_in, events_in
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes

FIRST_EVENTS: Final = 128
PART_S: Final = 0.01
"""Events are evaluated in parts that take about this long; the first part has FIRST_EVENTS."""

BATCH_S: Final = 20.0
"""After this time, no further part of a batch begins. So its caller gets an answer within the default
deadline, and so do others who wait for the detector or share its process."""

_RESULT_BYTES_MAX: Final = 1024
"""The maximum size of a result without actions and warnings."""


DETAILS_BYTES_MAX: Final = 1024 * 1024
"""The maximum size of `keys` and `found` in the result of one event; later actions have neither."""
_DETAILS_BYTES: Final = 20
"""The size of these two names in an action."""


class ReportedEntry(msgspec.Struct, frozen=True):
    """An entry as JSON."""

    code: int
    message: str


def encode_entries(entries: list[Entry] | tuple[Entry, ...]) -> bytes:
    """Return the JSON array for `errors` or `messages`."""
    return msgspec.json.encode([ReportedEntry(*entry) for entry in entries])


def encode_firings(firings: Iterable[FiredByTime], bytes_max: int) -> tuple[bytes, int]:
    """Return firings by time as a JSON array of actions of bounded size, and how many had no room."""
    actions: list[bytes] = []
    left, without_room = bytes_max, 0
    for firing in firings:
        members: dict[str, Any] = {
            "keys": {name: shown(value).value for name, value in firing.keys.items()},
            "time_ms": milliseconds(firing.time_us),
            "timed": True,
        }
        action = firing.rule.action_json()[:-1] + b"," + json_bytes(members)[1:]
        left -= len(action) + 1
        if left < 0:
            without_room += 1
        else:
            actions.append(action)
    return b"[" + b",".join(actions) + b"]", without_room


def detailed_actions(firings: Firings) -> list[bytes]:
    """Return the actions of firings, with `keys` and `found` as long as there is room."""
    actions = [rule.action_json() for rule in firings.rules]
    left = DETAILS_BYTES_MAX
    for place, details in enumerate(firings.details):
        members = json_bytes({"keys": details.keys, "found": details.found})
        left -= len(members) - _DETAILS_BYTES
        if left < 0:
            break
        actions[place] = actions[place][:-1] + b"," + members[1:]
    return actions


def _detailed(
    detector: Detector, events: Sequence[Event | Refusal]
) -> tuple[list[bytes], dict[int, Refusal]]:
    """Evaluate events one by one. Return their results with details, and the refusals by place."""
    results: list[bytes] = []
    refused: dict[int, Refusal] = {}
    for place, event in enumerate(events):
        try:
            if isinstance(event, Refusal):
                raise event
            firings = evaluate_explained(detector, *event, explained=False, detailed=True)
        except Refusal as refusal:
            refused[place] = refusal.kept()
            results.append(refused_result(refusal))
            continue
        result = b'{"actions":[' + b",".join(detailed_actions(firings)) + b"]"
        if firings.messages:
            result += b',"messages":' + encode_entries(firings.messages)
        results.append(result + b"}")
    return results, refused


def refused_result(refusal: Refusal) -> bytes:
    """Return the result of a refused event of a batch as JSON."""
    return b'{"actions":[],"errors":' + encode_entries(refusal.entries) + b"}"


def results_of(outcomes: Outcomes) -> list[bytes]:
    """Return the result of each event as JSON."""
    # The same rules often fire together, mostly as the same tuple.
    known: dict[int, bytes] = {}
    results = []
    for fired in outcomes.fired:
        result = b'{"actions":[]}'
        if fired:
            result = known.get(id(fired), b"")
            if not result:
                result = known[id(fired)] = b'{"actions":' + actions_json(fired) + b"}"
        results.append(result)
    for place, messages in outcomes.messages.items():
        results[place] = results[place][:-1] + b',"messages":' + encode_entries(messages) + b"}"
    for place, refusal in outcomes.refused.items():
        results[place] = refused_result(refusal)
    return results


def no_room(limit_bytes: int) -> bytes:
    """Return the result of an event that was not evaluated because the answer is full."""
    return refused_result(without_room(limit_bytes))


def without_room(limit_bytes: int) -> Refusal:
    """Return the Refusal of an event for which the answer has no room, or its batch no time."""
    limits = f"{limit_bytes} bytes or {BATCH_S:g} s"
    said = f"event not evaluated: the response limit of {limits} is reached; resend it"
    return Refusal(Entry(1400, said))


def room_for(detector: Detector, size_bytes: int, *, detailed: bool = False) -> int:
    """Return how many results certainly have room in an answer of `size_bytes` so far; 0 if it is full."""
    bytes_max = detector.limits.answer_bytes_max
    worst = detector.rule_set.answer_bytes_worst + _RESULT_BYTES_MAX
    if detailed:
        worst += DETAILS_BYTES_MAX + _DETAILS_BYTES * len(detector.live)
    left = bytes_max - size_bytes
    # If one result can exceed half of the limit, it suffices that half of the limit is free.
    return 0 if left < min(worst, bytes_max // 2) else max(1, left // worst)


def results_within(
    detector: Detector,
    events: Sequence[Event | Refusal],
    between: Callable[[], None] = lambda: None,
    *,
    detailed: bool = False,
) -> tuple[list[bytes], tuple[int, ...]]:
    """Evaluate events in order while the answer has room and the batch has time, at least one of them.

    An event that is already a Refusal keeps its place. Returns the results, which are fewer than the events
    if the answer is full, and the indices of the refused events. `between` is called from time to time
    between two events.
    """
    results: list[bytes] = []
    refused: list[int] = []
    size = 0

    def room() -> int:
        return room_for(detector, size, detailed=detailed)

    try:
        for part in parts_in_turn(len(events), room, between):
            if detailed:
                of_part, refusals = _detailed(detector, events[part])
            else:
                outcomes = detector.submit_clean(events[part])
                of_part, refusals = results_of(outcomes), outcomes.refused
            size += sum(map(len, of_part)) + len(of_part)
            results += of_part
            for place, refusal in refusals.items():
                refused.append(part.start + place)
                detector.refused[refusal.entries[0].code] += 1
    finally:
        detector.forget_lookups()
    return results, tuple(refused)


def parts_in_turn(count: int, room: Callable[[], float], between: Callable[[], None]) -> Iterator[slice]:
    """Yield the parts in which to evaluate `count` events while there is room, at least one part.

    A part is evaluated before the next is requested, and takes about PART_S. `between` is called after each.
    The last one begins within BATCH_S.
    """
    start, size, ends_s = 0, FIRST_EVENTS, perf_counter() + BATCH_S
    while start < count and (((most := room()) and perf_counter() < ends_s) or not start):
        stop = min(count, start + max(1, int(min(size, most))))
        began_s = perf_counter()
        yield slice(start, stop)
        size = 2 * size if perf_counter() - began_s < PART_S else max(1, size // 2)
        start = stop
        between()


# -- answers ------------------------------------------------------------------------------------------------

_DROPPED_TOGETHER: Final = 100


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a successful request: its result and its messages as JSON."""

    result: bytes
    messages: bytes = b"[]"
    changes: bytes = b""
    """The changes it made, for the service's log of changes; empty if there is nothing to log."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a refused request. It has changed nothing."""

    entries: tuple[Entry, ...]


Answer = Done | Refused


def evaluate_body(detector: Detector, body: bytes) -> Answer:
    """Evaluate the event of a body, and return the answer."""
    try:
        outcome = detector.submit_clean_one(*event_in(decode_evaluate(body, detector.limits)))
    except Refusal as refusal:
        return Refused(refusal.entries)
    finally:
        detector.forget_lookups()
    messages = encode_entries(outcome.messages) if outcome.messages else b"[]"
    return Done(b'{"actions":' + actions_json(outcome.fired) + b"}", messages)


def tick(detector: Detector, time_us: int, between: Callable[[], None]) -> Done:
    """Move a detector's clock, and return the answer. Raises Refusal 1402. See `Detector.tick`."""
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
    """Evaluate the events of a body in order. A refused event has an error as its result; others continue.

    Returns the answer, and the indices of the refused events, including those not evaluated because the
    answer was full or the batch took too long. `between` is called from time to time between two events.
    """
    # If garbage collection ran before the events are freed, it would scan them all.
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
    """Evaluate the events of a body in order. A refused event has an error as its result; others continue.

    Returns the results as lines, and the indices of the refused events. Blank lines do not count. If the
    answer is full, or takes too long, there are fewer results than events. The remaining events were not
    evaluated, count as refused, and may be sent again. `between` is called from time to time between two
    events.
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
    """Free events a few at a time: freeing a long batch at once would hold the interpreter for long."""
    while events:
        del events[-_DROPPED_TOGETHER:]
