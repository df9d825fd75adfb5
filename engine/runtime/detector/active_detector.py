"""An active detector, with its store and its pending snapshot."""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.operators.terms.clock import zones_version
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.figures import DetectorFigures
from engine.runtime.contract.measures import Counted
from engine.runtime.contract.requests.operations import EVALUATE, PUT_RELATION, PUT_RULES, Operation
from engine.runtime.contract.requests.tuples import PutRelation
from engine.runtime.detector.lag import due_of
from engine.runtime.detector.persistence import detector_snapshot, journal_entries
from engine.runtime.detector.persistence.detector_snapshot import SNAPSHOT_VERSION, DetectorSnapshot
from engine.runtime.detector.persistence.idempotency import PAGE_VERSION, IdempotencyCache, PendingPage
from engine.runtime.detector.persistence.journal_entries import JournalEntry, JournalRecord, RelationPart
from engine.runtime.detector.persistence.uploads import Uploads
from snapshots.store import Store
from snapshots.write.due_marks import DueMarks

Position = tuple[int | None, int, int]
"""A detector's position: the time of its last event, the number of its events, and the checksum of the
verdicts since the last journal record."""


_PASSIVATED_JOURNAL_BYTES: Final = 256 * 1024
"""A passivated detector leaves at most this much journal for the next activation to replay."""

_PASSIVATED_SEGMENTS: Final = 5
"""The same in segments, plus at most one. Each owner that wrote leaves at least one."""

_ENTRY_BYTES: Final = 4096
_AS_JSON: Final = 4
_EVENT_BYTES: Final = 512
"""The room reserved for one event without a stored answer. Most such events then fit in the first block that
a segment reserves."""

_MANY_WAIT: Final = 10_000
"""Up to this many pending slices of timed rules, an event at which all fire takes less than a second."""

_OVERDUE_US: Final = 5_000_000
"""Slices overdue for so long have not been ticked, because old records are being replayed to the detector."""


@dataclass(slots=True)
class ActiveDetector:
    """A detector that is active in this worker, with its store and its pending snapshot."""

    detector_id: str
    detector: Detector
    answers: IdempotencyCache
    store: Store
    diverged: bool
    """Whether the journal has records that diverged in the replay, and would diverge in the next one."""
    complete: bool = True
    """Whether the journal gets all events."""
    unsaved: bool = False
    """Whether some data is in neither the newest snapshot nor the journal."""
    saving: "PendingSnapshot | None" = None
    uploads: Uploads = field(default_factory=Uploads)
    """The relations that are being uploaded."""
    counted: Counted = field(init=False)
    """The detector's counts that are included in the measurements."""

    def __post_init__(self) -> None:
        self.counted = counted(self.detector)

    @property
    def must_be_saved(self) -> bool:
        """Whether a passivation without a snapshot would lose data, or leave much to replay."""
        store = self.store
        long = store.journal_bytes > _PASSIVATED_JOURNAL_BYTES or store.segments_read >= _PASSIVATED_SEGMENTS
        return self.unsaved or self.diverged or long

    @property
    def dues(self) -> DueMarks:
        """The marks that say when something is due."""
        assert self.store.dues is not None, "the folder was recovered"
        return self.store.dues

    @property
    def due_us(self) -> int | None:
        """When the service must tick the detector, by the server's clock; None if never."""
        return due_of(self.detector)

    def may_fire_much(self, now_us: Callable[[], int]) -> bool:
        """Return whether many slices of timed rules are pending, and some are overdue."""
        timing = self.detector.timing
        due_us = timing.next_due_us if timing.watches and len(timing.queue) > _MANY_WAIT else None
        return due_us is not None and due_us < now_us() - _OVERDUE_US

    def write(
        self, entries: tuple[JournalEntry, ...], reached: Position | None = None, now_us: int = 0
    ) -> None:
        """Append the record of a batch; without a batch, a record of the detector's position."""
        detector, complete = self.detector, self.complete
        clock_us, events_seen, verdicts = reached or position(detector)
        detector.verdicts.take()
        program, zones = journal_entries.program_version(), zones_version()
        checksum = verdicts if complete else None
        installed, self.uploads.installed = self.uploads.installed, []
        for staged in installed:
            part = (RelationPart(staged),)
            self._append(JournalRecord(clock_us, events_seen, False, part, now_us, program, None, zones))
        self._append(
            JournalRecord(clock_us, events_seen, complete, entries, now_us, program, checksum, zones)
        )

    def begin_saving(self, now_us: int, *, goes_on: bool) -> bool:
        """Copy the state for a snapshot; return False if there is nothing to save. Raises StorageError.

        Without `goes_on`, the owner ends after saving the snapshot.
        """
        assert self.saving is None, "one snapshot at a time"
        store = self.store
        if not self.unsaved and not store.journal_bytes:
            return False
        if self.unsaved:
            # The journal lacks some events, so add a record with the position that the snapshot refers to.
            self.write(())
        sequence = store.begin_snapshot(goes_on=goes_on)
        page = self.answers.begin_page(now_us)
        contents = detector_snapshot.take_snapshot(self.detector)
        self.saving = PendingSnapshot(contents, page, sequence)
        self.unsaved = self.diverged = False
        return True

    def finish_saving(self) -> None:
        """Write the pending snapshot, beside the thread that evaluates. Raises StorageError."""
        saving = self.saving
        assert saving is not None, "a snapshot was begun"
        try:
            if saving.page is not None:
                # The page comes first: the snapshot allows deleting the journal's copies of the answers.
                self.store.save_page(
                    saving.page.body(),
                    version=PAGE_VERSION,
                    sequence=saving.sequence,
                    expires_us=saving.page.expires_us,
                )
                self.answers.page_written(saving.page)
            pieces = detector_snapshot.pieces(saving.contents)
            made = detector_snapshot.paced(pieces, time.monotonic, time.sleep)
            self.store.save(made, version=SNAPSHOT_VERSION, sequence=saving.sequence)
        except BaseException:
            self.unsaved = self.unsaved or not self.complete
            raise
        finally:
            self.saving = None
        feed, durable = self.detector.feed, saving.contents.detector.feed[0]
        if durable > feed.durable:
            feed.settle(durable)

    def leave(self) -> None:
        """Release the folder, and leave a mark of the time of the next tick. Raises StorageError."""
        if self.due_us is not None or self.dues.any:
            self.store.check_owner()
            self.dues.leave(self.due_us)
        self.store.release()

    def _append(self, record: JournalRecord) -> None:
        self.store.append(journal_entries.encode(record), version=journal_entries.RECORD_VERSION)

    def figures(self) -> DetectorFigures:
        """Return the detector's figures, without its epoch."""
        detector = self.detector
        return DetectorFigures(
            self.detector_id,
            0,
            rules=len(detector.live),
            keys=detector.histories.live,
            state_bytes=detector.histories.bytes,
            relations_bytes=detector.relations_bytes,
            journal_bytes=self.store.journal_bytes,
            events=detector.events_seen,
            newest_firing=detector.feed.durable,
        )


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A snapshot that is being written."""

    contents: DetectorSnapshot
    page: PendingPage | None
    """The answers that are in no page yet."""
    sequence: int


def estimated_bytes(operation: Operation, uploads: Uploads) -> int:
    """Return an upper estimate of what an operation adds to the journal.

    An entry that turns out larger, because of a stored answer or a long JSON condition, may not fit when it
    is written, which costs an activation.
    """
    if operation.kind == PUT_RELATION:
        put = msgspec.json.decode(operation.payload, type=PutRelation)
        return put.parts * _ENTRY_BYTES + uploads.bytes_of(put.upload)
    short = operation.kind == EVALUATE and not operation.key
    if operation.kind == PUT_RULES:
        # Conditions are longer as JSON.
        return _AS_JSON * len(operation.payload) + _ENTRY_BYTES
    return len(operation.payload) + (_EVENT_BYTES if short else _ENTRY_BYTES)


def position(detector: Detector) -> Position:
    """Return a detector's position."""
    return detector.clock_us, detector.events_seen, detector.verdicts.checksum


def counted(detector: Detector) -> Counted:
    """Return a detector's counts."""
    return Counted(
        detector.events_seen,
        detector.actions,
        detector.keys_evicted,
        detector.shadows.tally.copy(),
        detector.ticks,
        detector.firings_by_time,
        detector.feed.last,
    )


def with_storage(answer: Answer, operation: Operation, store: Store, resident_bytes: int) -> Answer:
    """Add storage and worker to an answer about the whole state; return any other answer unchanged."""
    if not isinstance(answer, Done):
        return answer
    if msgspec.json.decode(operation.payload, type=StateAsked).about != "all":
        return answer
    view: dict[str, Any] = {
        "journal": {
            "record": store.sequence,
            "bytes": store.journal_bytes,
            "segments": store.segment_count,
            "synced": not store.unsynced,
        },
        "snapshot": {
            "record": store.snapshot_sequence,
            **({} if (saved_us := store.snapshot_us) is None else {"saved_ms": saved_us // 1_000}),
        },
        "worker": {
            "node": platform.node(),
            "pid": os.getpid(),
            "epoch": store.epoch,
            "resident_bytes": resident_bytes,
        },
    }
    return Done(answer.result[:-1] + b"," + msgspec.json.encode(view)[1:])
