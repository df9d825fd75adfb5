"""An active detector, with its store and its pending snapshot."""

from dataclasses import dataclass, field
from typing import Final

from engine.evaluation.detector import Detector
from engine.runtime.contract.measurements.figures import DetectorFigures
from engine.runtime.contract.measurements.measures import Counted
from engine.runtime.detector.persistence import journal_entries
from engine.runtime.detector.persistence.detector_snapshot import DetectorSnapshot
from engine.runtime.detector.persistence.idempotency import IdempotencyCache, PendingPage
from engine.runtime.detector.persistence.journal_entries import JournalEntry, JournalRecord, RelationPart
from engine.runtime.detector.persistence.uploads import Uploads
from snapshots.store import Store

Position = tuple[int | None, int, int]
"""A detector's position: the time of its last event, the number of events, and the checksum of the verdicts
since the last journal record."""


_PASSIVATED_JOURNAL_BYTES: Final = 256 * 1024
"""A passivated detector leaves at most this much journal for the next activation to replay."""

_PASSIVATED_SEGMENTS: Final = 5
"""The same in segments, or one more. Each owner that wrote leaves at least one."""


@dataclass(slots=True)
class ActiveDetector:
    """A detector that is active in this worker, with its store and its pending snapshot."""

    detector_id: str
    detector: Detector
    answers: IdempotencyCache
    store: Store
    diverged: bool
    """Whether the journal has records that diverged in the replay, and would be reported again."""
    unsaved: bool = False
    """Whether some data is in neither the newest snapshot nor the journal."""
    saving: "PendingSnapshot | None" = None
    uploads: Uploads = field(default_factory=Uploads)
    """The relations that are being uploaded."""

    @property
    def must_be_saved(self) -> bool:
        """Whether a passivation without a snapshot would lose data, or leave much to replay."""
        store = self.store
        long = store.journal_bytes > _PASSIVATED_JOURNAL_BYTES or store.segments_read >= _PASSIVATED_SEGMENTS
        return self.unsaved or self.diverged or long

    def settle_feed(self, durable: int | None = None) -> None:
        """Have firings be read up to one that is durable; by default, all that there are."""
        feed = self.detector.feed
        feed.settle(max(feed.durable, feed.last if durable is None else durable))

    def write(
        self,
        entries: tuple[JournalEntry, ...],
        reached: Position | None = None,
        now_us: int = 0,
        *,
        complete: bool,
    ) -> None:
        """Append the record of a batch; without a batch, a record of the detector's position.

        `complete` says whether the journal has all events.
        """
        detector = self.detector
        clock_us, events_seen, verdicts = reached or position(detector)
        detector.verdicts.take()
        program, zones = journal_entries.program_version(), journal_entries.zones_version()
        checksum = verdicts if complete else None
        for staged in self.uploads.take_installed():
            part = (RelationPart(staged),)
            self._append(JournalRecord(clock_us, events_seen, False, part, now_us, program, None, zones))
        self._append(
            JournalRecord(clock_us, events_seen, complete, entries, now_us, program, checksum, zones)
        )

    def _append(self, record: JournalRecord) -> None:
        self.store.append(journal_entries.encode(record), version=journal_entries.RECORD_VERSION)

    def figures(self) -> DetectorFigures:
        """Return what the detector holds, without its epoch."""
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

    store: Store
    contents: DetectorSnapshot
    answers: IdempotencyCache
    page: PendingPage | None
    """The answers that are in no page yet."""
    sequence: int


def position(detector: Detector) -> Position:
    """Return a detector's position."""
    return detector.clock_us, detector.events_seen, detector.verdicts.checksum


def counted(detector: Detector) -> Counted:
    """Return what has been counted of a detector, before a batch or after it."""
    tally, newest_firing = detector.shadows.tally.copy(), detector.feed.last
    return detector.events_seen, detector.actions, detector.keys_evicted, tally, newest_firing
