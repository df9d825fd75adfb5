"""A detector that an actor hosts, and what it stands on."""

from dataclasses import dataclass

from engine.evaluation.detector import Detector
from engine.runtime.detector.detector_snapshot import DetectorSnapshot
from engine.runtime.detector.idempotency import IdempotencyCache, PendingPage
from snapshots.store import Store

Position = tuple[int | None, int, int]
"""Where a detector stands: the time of its last event, how many there were, and the checksum of what fired at
those since the last record."""


@dataclass(slots=True)
class ActiveDetector:
    """The detector that is awake here, and what it stands on."""

    detector_id: str
    detector: Detector
    answers: IdempotencyCache
    store: Store
    unsaved: bool = False
    """Whether there is anything that neither the newest snapshot nor the journal has."""
    saving: "PendingSnapshot | None" = None
    diverged: bool = False
    """Whether the journal has records that a replay would report again."""


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A snapshot on its way to the disk."""

    store: Store
    kept: DetectorSnapshot
    answers: IdempotencyCache
    page: PendingPage | None
    """The answers that no page has yet."""
    sequence: int


def position(detector: Detector) -> Position:
    """Give where a detector stands."""
    return detector.clock_us, detector.events_seen, detector.verdicts.checksum
