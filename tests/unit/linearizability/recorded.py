"""Holds answers against the order in which a detector's stores were given its records.

A search for an order may take long, and this order is the one that was. What an owner wrote counts up to the
record after which a successor wrote its own.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from engine.evaluation.persistence.saved import stored_condition
from engine.runtime.detector.persistence import journal_entries as journal
from snapshots.store import Store
from tests.linearizability.history import REFUSED, Call, Evaluate, Fired, Position
from tests.reference import ReferenceDetector

Content = tuple[float, str]
"""An event's timestamp and fields."""


def content(timestamp_ms: float, fields: Mapping[str, Any]) -> Content:
    return timestamp_ms, json.dumps(dict(fields), sort_keys=True)


class Recording:
    """The records that the stores of detectors are given, and where their owners begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._begun = defaultdict[str, dict[int, int]](dict)
        """By detector and epoch, the last record before an owner's own."""
        self._written = defaultdict[tuple[str, int | None], dict[int, bytes]](dict)
        recover, append = Store.recover, Store.append

        def recovering(store: Store) -> Any:
            found = recover(store)
            assert store.epoch is not None
            self._begun[store.folder.name][store.epoch] = store.sequence
            return found

        def appending(store: Store, payload: bytes, *, version: int) -> int:
            sequence = append(store, payload, version=version)
            self._written[store.folder.name, store.epoch][store.sequence] = payload
            return sequence

        monkeypatch.setattr(Store, "recover", recovering)
        monkeypatch.setattr(Store, "append", appending)

    def entries(self, detector_id: str) -> Iterator[journal.JournalEntry]:
        """Give what became of a detector, in order."""
        records = list[bytes]()
        end = None
        for epoch, begin in sorted(self._begun[detector_id].items(), reverse=True):
            written = sorted(self._written[detector_id, epoch].items(), reverse=True)
            own = [payload for sequence, payload in written if begin < sequence <= (end or sequence)]
            records += own
            if own:
                # An owner that wrote nothing leaves it open what its predecessor still writes.
                end = begin
        for payload in reversed(records):
            yield from journal.decode(payload).entries


class Replay:
    """The reference, given these entries: what each event was answered, and how many there were when."""

    def __init__(self, entries: Iterator[journal.JournalEntry]) -> None:
        self.answers = defaultdict[Content, list[tuple[int, Fired]]](list)
        """With the places of their entries."""
        self.counted_at = {0: 0}
        """The last place at which there were so many events."""
        self._reference = ReferenceDetector()
        for place, entry in enumerate(entries):
            self._take(place, entry)
            self.counted_at[len(self._reference.events)] = place

    def _take(self, place: int, entry: journal.JournalEntry) -> None:
        reference = self._reference
        match entry:
            case journal.RulePut(id=rule_id) if rule_id in reference.rules:
                condition = stored_condition(entry.condition)
                reference.change_rule(
                    rule_id, condition=condition, notify=entry.notify, enabled=entry.enabled
                )
            case journal.RulePut():
                condition = stored_condition(entry.condition)
                reference.add_rule(entry.id, entry.name, condition, notify=entry.notify)
            case journal.RuleRemoved():
                reference.rules.pop(entry.id)
            case journal.Evaluated():
                self._evaluate(place, json.loads(entry.body)["event"])
            case journal.EvaluatedBatch():
                for index, event in enumerate(json.loads(entry.body)["events"]):
                    if index not in entry.refused:
                        self._evaluate(place, event)

    def _evaluate(self, place: int, event: Mapping[str, Any]) -> None:
        timestamp_ms, fields = event["timestamp_ms"], event["fields"]
        before = self._reference.events[-1:]
        late_us = max(0, before[0].time_us - timestamp_ms * 1_000) if before else 0
        actions = self._reference.evaluate(fields, timestamp_ms)
        assert actions is not None, f"in the journal, and refused by the reference: {event}"
        fired = Fired(tuple((kind, name, level, notify) for kind, _, name, level, notify in actions), late_us)
        self.answers[content(timestamp_ms, fields)].append((place, fired))


def problems(calls: Sequence[Call], replay: Replay) -> list[str]:
    """Return what is wrong with answers: events lost or applied twice, other verdicts, another order."""
    found = list[str]()
    sent = defaultdict[Content, set[int]](set)
    places = list[tuple[int, int, Call]]()
    for call in calls:
        if isinstance(call.asked, Evaluate):
            for event in call.asked.events:
                sent[content(event.timestamp_ms, event.fields)].add(event.number)
        if not call.answered:
            continue
        if isinstance(call.asked, Position):
            if call.answer.events not in replay.counted_at:
                found.append(f"there never were so many events: {call}")
                continue
            places.append((replay.counted_at[call.answer.events],) * 2 + (call,))
        elif isinstance(call.asked, Evaluate) and isinstance(call.answer, tuple):
            own = list[int]()
            for event, answer in zip(call.asked.events, call.answer, strict=True):
                if answer == REFUSED:
                    continue
                was = replay.answers[content(event.timestamp_ms, event.fields)]
                own += [place for place, fired in was if fired == answer][:1]
                if all(fired != answer for _, fired in was):
                    found.append(f"{'another verdict' if was else 'lost'}: event {event.number} of {call}")
            if own:
                places.append((min(own), max(own), call))
    found += [f"applied twice: {one}" for one, was in replay.answers.items() if len(was) > len(sent[one])]
    for _, last, late in places:
        # What is asked again with a key may have been executed before.
        if not isinstance(late.asked, Evaluate) or not late.asked.key:
            found += [
                f"{late} came before {early}, which had returned"
                for first, _, early in places
                if early.returned_ns < late.called_ns and first > last
            ]
    return found
