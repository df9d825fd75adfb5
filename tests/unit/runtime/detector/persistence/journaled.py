"""A detector that notes each of its steps, and one that takes them again."""

from pathlib import Path
from typing import Any

from engine.evaluation.detector import Detector
from engine.language.limits import Limits
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector import apply as apply_module
from engine.runtime.detector.persistence import detector_snapshot
from engine.runtime.detector.persistence import journal_entries as history
from engine.runtime.detector.persistence.detector_snapshot import SNAPSHOT_VERSION
from engine.runtime.detector.persistence.idempotency import (
    PAGE_VERSION,
    IdempotencyCache,
    key_digest,
)
from engine.runtime.detector.persistence.journal_entries import (
    RECORD_VERSION,
    JournalEntry,
    JournalRecord,
)
from engine.runtime.detector.persistence.replay import restore
from snapshots.format.pages import Page
from snapshots.format.segment_reader import Record
from snapshots.format.snapshot_file import Snapshot
from snapshots.takeover.recovered import Recovered

NOW_MS = 100_000
LIMITS = Limits(keys_max=5, batch_events_max=6, answer_bytes_max=3_000)


class Journaled:
    """A detector that lives through operations, and what would be on the disk."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.detector = Detector(limits=limits, now_us=lambda: NOW_MS * 1_000)
        self.answers = IdempotencyCache(600_000_000, 1 << 20)
        self.records: list[Record] = []
        self.pages: list[Page] = []
        self.now_us = 0
        self.answered_at_us: dict[bytes, int] = {}
        """When the answers to keys were given, the last time."""
        self.snapshot: Snapshot | None = None

    def take(self, operation: Operation, now_us: int = 0) -> Any:
        self.now_us = now_us
        applied = apply_module.apply(self.detector, "d", self.answers, operation, now_us)
        if applied.entry is not None:
            self.tell(applied.entry)
            if operation.key:
                self.answered_at_us[key_digest(operation.key)] = now_us
        return applied.answer

    def tell(self, *told: JournalEntry) -> None:
        detector = self.detector
        verdicts = detector.verdicts.take()
        at = detector.clock_us, detector.events_seen
        one = JournalRecord(*at, True, told, self.now_us, "0.0.0", verdicts)
        payload = history.encode(one)
        self.records.append(Record(len(self.records) + 1, RECORD_VERSION, payload, Path("journal"), 0))

    def save(self) -> None:
        page = self.answers.begin_page(self.now_us)
        if page is not None:
            self.pages.append(Page(PAGE_VERSION, page.body()))
            self.answers.page_written(page)
        body = b"".join(detector_snapshot.pieces(detector_snapshot.take_snapshot(self.detector)))
        self.snapshot = Snapshot(1, len(self.records), SNAPSHOT_VERSION, body)

    def restored(self) -> "Journaled":
        after = 0 if self.snapshot is None else self.snapshot.sequence
        other = Journaled()
        recovered = Recovered(self.snapshot, self.records[after:], (), self.pages)
        restored = restore(recovered, other.answers, LIMITS)
        assert restored.diverged is None
        other.detector = restored.detector
        other.detector.live_at(lambda: NOW_MS * 1_000)
        return other


def told(journaled: Journaled) -> list[JournalEntry]:
    return [step for record in journaled.records for step in history.decode(record.payload).entries]
