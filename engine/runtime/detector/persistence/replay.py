"""Restores a detector from its folder: the newest snapshot, then the journal after it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.operators.terms.clock import zones_version
from engine.evaluation.rule_book.changes.versions import Change
from engine.evaluation.wire.batches import decode_batch
from engine.evaluation.wire.decoding import decode_evaluate, decode_lines, event_in, events_in
from engine.evaluation.wire.records import Ingest, events_of, in_order
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits
from engine.runtime.contract.requests.operations import BATCH_KINDS, EVALUATE, INGEST, TICK
from engine.runtime.detector.lag import note_lag
from engine.runtime.detector.persistence import journal_entries as entries
from engine.runtime.detector.persistence.detector_snapshot import detector_from
from engine.runtime.detector.persistence.idempotency import (
    PAGE_VERSION,
    CachedAnswer,
    IdempotencyCache,
    request_digest,
)
from engine.runtime.detector.persistence.replay_attempts import Poisoned
from engine.runtime.detector.persistence.uploads import Uploads, change_relation
from snapshots.errors import other_format
from snapshots.format.segment_reader import Record
from snapshots.takeover.recovered import Recovered


@dataclass(frozen=True, slots=True)
class Restored:
    """A detector in the state of its last answer. It accepts timestamps of events unchecked."""

    detector: Detector
    records: int
    """The number of journal records replayed."""
    diverged: str | None = None
    """The records whose replay fires other rules than originally; None if there are none."""


def restore(
    recovered: Recovered,
    answers: IdempotencyCache,
    default_limits: Limits,
    reached: Callable[[Record], None] = lambda _: None,
) -> Restored:
    """Restore the detector of a folder, and add its stored answers to `answers`.

    `reached` is called with each record before it is replayed. Raises NewerFormat, OlderFormat and Poisoned.
    """
    snapshot = recovered.snapshot
    if snapshot is None:
        detector = Detector(limits=default_limits)
    else:
        detector = detector_from(snapshot.body, snapshot.version)
    for page in recovered.pages:
        if page.version != PAGE_VERSION:
            raise other_format("answers were stored", page.version, PAGE_VERSION)
        answers.load_page(page.body)
    replay = Replay(detector, answers)
    records = 0
    diverged = _Diverged()
    for record in recovered.records:
        record.check_version(entries.RECORD_VERSION)
        reached(record)
        try:
            decoded = entries.decode(record.payload)
            if not replay.take(decoded):
                diverged.note(record, decoded)
        except Exception as error:
            raise Poisoned(
                f"{record.path} at {record.offset}: the record {record.sequence} cannot be replayed: "
                f"{type(error).__name__}: {error}"
            ) from error
        records += 1
    return Restored(replay.detector, records, diverged.summary)


class Diverged(Exception):
    """The replay reached another state than the original execution."""


_Answered = entries.Evaluated | entries.EvaluatedBatch | entries.EvaluatedRecords | entries.Ticked


class Replay:
    """Replays a detector's journal."""

    def __init__(self, detector: Detector, answers: IdempotencyCache) -> None:
        self.detector = detector
        self.answers = answers
        self._uploads = Uploads()

    def take(self, record: entries.JournalRecord) -> bool:
        """Replay a record; return whether the same rules fired as originally.

        Raises Diverged if the replay reaches another position.
        """
        before = self.detector
        before.verdicts.take()
        began = before.clock_us, before.events_seen
        for entry in record.entries:
            self._take(entry, record.answered_at_us)
        if not any(isinstance(entry, entries.RelationPart) for entry in record.entries):
            # Parts that no RelationPut directly follows are left by an owner that died.
            self._uploads.clear()
        detector = self.detector
        note_lag(detector, began, record.answered_at_us)
        there = (detector.clock_us, detector.events_seen)
        if record.complete and there != (record.clock_us, record.events_seen):
            raise Diverged(
                f"the replay leads to event {there[1]} at {there[0]} µs, "
                f"and the original led to event {record.events_seen} at {record.clock_us} µs"
            )
        verdicts = detector.verdicts.take()
        return record.verdicts is None or record.verdicts == verdicts

    def _take(self, entry: entries.JournalEntry, at_us: int) -> None:
        detector = self.detector
        if isinstance(entry, entries.RULES):
            detector.change = Change(at_us, entry.by)
        match entry:
            case entries.Evaluated():
                self._observe([event_in(decode_evaluate(entry.body, detector.limits))])
                self._keep(EVALUATE, entry, at_us)
            case entries.EvaluatedBatch():
                refused = frozenset(entry.refused)
                events = events_in(decode_batch(entry.body, detector.limits, entry.form))
                self._observe([event for place, event in enumerate(events) if place not in refused])
                self._keep(BATCH_KINDS[entry.form], entry, at_us)
            case entries.EvaluatedLines():
                self._observe(_events_of(entry, detector.limits))
            case entries.EvaluatedRecords():
                self._observe(_events_in(entry, at_us, detector.limits))
                self._keep(INGEST, entry, at_us)
            case entries.Ticked():
                detector.tick(entry.time_us)
                self._keep(TICK, entry, at_us)
            case entries.RulePut():
                detector.put_rule(entries.rule_of(entry), entry.history)
            case entries.RulesChanged():
                put = [(entries.rule_of(each), each.history) for each in entry.put]
                detector.change_rules(put, entry.removed)
            case entries.RuleRemoved():
                detector.remove_rule(entry.id)
            case entries.DraftPromoted():
                detector.promote(entry.id)
            case entries.RelationPart():
                self._uploads.stage(detector, entry.staged)
            case entries.RelationPut():
                self._uploads.install(detector, entry.name, entry.upload, entry.parts, entry.changed_ms)
            case entries.RelationChanged():
                change_relation(detector, entry.change, entry.changed_ms)
            case entries.RelationDeleted():
                detector.delete_relation(entry.name)
            case entries.LimitsSet():
                self.detector = entries.under_limits(detector, entries.limits_from(entry.limits))
            case _:
                assert_never(entry)

    def _observe(self, events: list[Any]) -> None:
        outcomes = self.detector.submit_clean(events)
        self.detector.forget_lookups()
        for refusal in outcomes.refused.values():
            raise Diverged(f"an event was refused that was accepted originally: {refusal}") from refusal

    def _keep(
        self,
        kind: str,
        entry: entries.Evaluated | entries.EvaluatedBatch | entries.EvaluatedRecords | entries.Ticked,
        at_us: int,
    ) -> None:
        answer = entry.answer
        if answer is not None:
            request = request_digest(kind, entry.body)
            self.answers.keep(CachedAnswer(answer.key, request, answer.result, answer.messages), at_us)


def _events_of(entry: entries.EvaluatedLines, limits: Limits) -> list[Any]:
    refused = frozenset(entry.refused)
    events = []
    for place, line in enumerate(decode_lines(entry.lines, limits)):
        if place in refused:
            continue
        if isinstance(line, Refusal):
            raise Diverged(f"a line was refused that was accepted originally: {line}")
        events.append(event_in(line))
    return events


def _events_in(entry: entries.EvaluatedRecords, now_us: int, limits: Limits) -> list[Any]:
    refused = frozenset(entry.refused)
    events = events_of(msgspec.msgpack.decode(entry.body, type=Ingest), now_us, limits)
    for place, event in enumerate(events):
        if isinstance(event, Refusal) and place not in refused:
            raise Diverged(f"a record was refused that was accepted originally: {event}")
    return [events[place] for place in in_order(events) if place not in refused]


class _Diverged:
    """The records whose replay fires other rules than originally. They are reported, and replay goes on.

    The original answers cannot be taken back, and later events are evaluated by this program anyway. Stopping
    would make the detector unavailable until the older program runs again.
    """

    def __init__(self) -> None:
        self._count = 0
        self._first = ""

    def note(self, record: Record, decoded: entries.JournalRecord) -> None:
        if not self._count:
            self._first = (
                f"{record.path} at {record.offset}: at the events of record {record.sequence}, "
                f"other rules fire in version {entries.program_version()} "
                f"than fired when version {decoded.program} evaluated them"
            )
            if decoded.zones != zones_version():
                known = [zones or "an unknown version" for zones in (zones_version(), decoded.zones)]
                self._first += f"; the time zones are of {known[0]}, and were of {known[1]}"
        self._count += 1

    @property
    def summary(self) -> str | None:
        if self._count <= 1:
            return self._first or None
        return f"{self._first}; the same holds for {self._count} records in all"
