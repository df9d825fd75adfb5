"""Evaluates records in the order of their times, and counts what became of them."""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.events.outcomes import Outcomes
from engine.evaluation.facts.values import Event
from engine.evaluation.wire.bodies import without_collector
from engine.evaluation.wire.events import Answer, Done, Refused
from engine.evaluation.wire.records.decoding import Ingest, events_of
from engine.evaluation.wire.results import (
    FIRST_EVENTS,
    PART_S,
    encode_entries,
    refused_result,
    results_of,
    room_for,
    without_room,
)
from engine.language.diagnostics import Entry, Refusal

ERRORS_MAX: Final = 20
"""How many refusals are told."""

KINDS_MAX: Final = 20
"""How many kinds of messages are told."""

_NUMBER_OR_NAME: Final = re.compile(r"[0-9]+|`[^`]*`")

_UNIT: Final = re.compile("[;:] timestamp_ms counts milliseconds[^;]*")
"""What messages say of an event's member; the times of records are told apart by size."""


def ingest(
    detector: Detector, given: Ingest, now_us: int, between: Callable[[], None] = lambda: None
) -> tuple[Answer, tuple[int, ...]]:
    """Evaluate the records of a body in the order of their times. The refused ones are counted.

    Gives the answer, and the places of the refused records. If all are refused, the answer is the first
    refusal, and those of its kind, unless they came as events. `between` is called from time to time. Raises
    Refusal as `events_of` does.
    """
    with without_collector(given.body):
        events = events_of(given, now_us, detector.limits, between)
        outcome = _Outcome(with_results=given.with_results)
        outcome.refused = {place: event for place, event in enumerate(events) if isinstance(event, Refusal)}
        places = in_order(events)
        outcome.evaluate(detector, [events[place] for place in places], places, between)
        count = len(events)
        events.clear()
    refused = dict(sorted(outcome.refused.items()))
    is_whole = bool(refused) and len(refused) == count and not given.are_events
    for refusal in [*refused.values()][is_whole:]:
        # Of an answer that is a refusal, the first is counted where it is given.
        detector.refused[refusal.entries[0].code] += 1
    errors = [
        (place, entry) for place, refusal in islice(refused.items(), ERRORS_MAX) for entry in refusal.entries
    ]
    if is_whole:
        kind = errors[0][1].code // 10
        same = [
            Entry(entry.code, f"record {place}: {entry.message.removeprefix('record: ')}")
            for place, entry in errors[:ERRORS_MAX]
            if entry.code // 10 == kind
        ]
        return Refused(tuple(same)), ()
    said: dict[str, Any] = {
        "accepted": count - len(refused),
        "refused": len(refused),
        "fired": outcome.fired,
        "errors": [{"index": place, **entry._asdict()} for place, entry in errors[:ERRORS_MAX]],
    }
    if given.with_results:
        said["results"] = [
            msgspec.Raw(refused_result(refused[place]) if place in refused else outcome.results[place])
            for place in range(count)
        ]
    return Done(msgspec.json.encode(said), encode_entries(outcome.said())), tuple(refused)


def in_order(events: Sequence[Event | Refusal]) -> list[int]:
    """Return the places of events by time, those of one time as they stand."""
    times = [(event[1], place) for place, event in enumerate(events) if not isinstance(event, Refusal)]
    times.sort()
    return [place for _, place in times]


class _Outcome:
    """What became of records, by their places in the body."""

    def __init__(self, *, with_results: bool) -> None:
        self.fired = 0
        """How many actions there were."""
        self.refused: dict[int, Refusal] = {}
        self.results: dict[int, bytes] = {}
        self._messages: dict[tuple[int, str], list[tuple[int, str]]] = {}
        """For each kind the messages, each with its record's place, unless they stand in the results."""
        self._with_results = with_results
        self._results_bytes = 0

    def evaluate(
        self,
        detector: Detector,
        events: Sequence[Any],
        places: Sequence[int],
        between: Callable[[], None],
    ) -> None:
        """Evaluate events, which stand at these places. Those without room in the answer are refused."""
        at, size = 0, FIRST_EVENTS
        try:
            while at < len(events):
                room = room_for(detector, self._results_bytes) if self._with_results else size
                if not room and at:
                    break
                part = slice(at, at + max(1, min(size, room)))
                began_s = perf_counter()
                self._note(detector.submit_clean(events[part]), places[part])
                at = part.stop
                size = 2 * size if perf_counter() - began_s < PART_S else max(1, size // 2)
                between()
        finally:
            detector.forget_lookups()
        self.refused.update(dict.fromkeys(places[at:], without_room(detector.limits.answer_bytes_max)))

    def said(self) -> list[Entry]:
        """Return of each kind the message about the first record that has one, and how many have one."""
        entries = []
        for (code, _), messages in sorted(self._messages.items())[:KINDS_MAX]:
            place, first = min(messages)
            count = f" ({len(messages)} records)" if len(messages) > 1 else ""
            entries.append(Entry(code, f"record {place}: {_UNIT.sub('', first)}{count}"))
        return entries

    def _note(self, outcomes: Outcomes, places: Sequence[int]) -> None:
        self.fired += sum(map(len, outcomes.fired))
        for number, refusal in outcomes.refused.items():
            entries = [Entry(entry.code, _UNIT.sub("", entry.message)) for entry in refusal.entries]
            self.refused[places[number]] = Refusal(*entries)
        if self._with_results:
            results = results_of(outcomes)
            self._results_bytes += sum(map(len, results)) + len(results)
            self.results.update(zip(places, results, strict=True))
        else:
            for number, messages in outcomes.messages.items():
                for code, text in messages:
                    self._messages.setdefault((code, _kind(text)), []).append((places[number], text))


def _kind(message: str) -> str:
    """Return a message without its numbers, which may differ from record to record, but with its names."""
    return _NUMBER_OR_NAME.sub(lambda found: found[0] if found[0][0] == "`" else "", message)
