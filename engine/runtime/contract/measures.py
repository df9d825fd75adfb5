"""The histograms of a worker and the counters of detectors, by name, with their help texts."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

BATCH_SECONDS: Final = "batch_seconds"
BATCH_OPERATIONS: Final = "batch_operations"
JOURNAL_SECONDS: Final = "journal_seconds"
JOURNAL_SYNC_SECONDS: Final = "journal_sync_seconds"
SNAPSHOT_PAUSE_SECONDS: Final = "snapshot_pause_seconds"
SNAPSHOT_SECONDS: Final = "snapshot_seconds"
ACTIVATION_SECONDS: Final = "activation_seconds"

SECONDS: Final = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
NUMBERS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)

HISTOGRAMS: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    BATCH_SECONDS: ("Seconds that a worker took to execute a batch and make its answers durable.", SECONDS),
    BATCH_OPERATIONS: ("Operations in a batch.", NUMBERS),
    JOURNAL_SECONDS: ("Seconds that the journal record of a batch took to become durable.", SECONDS),
    JOURNAL_SYNC_SECONDS: ("Seconds that a sync of a journal to the disk took.", SECONDS),
    SNAPSHOT_PAUSE_SECONDS: ("Seconds that a snapshot kept its detector from evaluating.", SECONDS),
    SNAPSHOT_SECONDS: ("Seconds that writing a snapshot took, while evaluation continued.", SECONDS),
    ACTIVATION_SECONDS: ("Seconds that a worker took to activate a detector, including its replay.", SECONDS),
}
"""The help text and the upper bounds of the buckets of each histogram. The last bucket has none."""


_BOUNDS: Final = {name: bounds for name, (_, bounds) in HISTOGRAMS.items()}


class Histogram(msgspec.Struct, array_like=True):
    """Observations by bucket, not cumulative, and their sum."""

    within: list[int]
    total: float = 0.0

    def add(self, other: "Histogram") -> None:
        """Add the observations of another histogram with the same bounds."""
        self.within = [one + two for one, two in zip(self.within, other.within, strict=True)]
        self.total += other.total


class Counted(NamedTuple):
    """The counts of a detector."""

    events: int
    """Events that it has evaluated."""
    actions: int
    keys_evicted: int
    shadows: Mapping[str, int]
    """How often its shadow rules fired, and the events of each kind in comparisons."""
    ticks: int
    firings_by_time: int
    firings: int
    """The number of the newest firing in its feed."""


def _no_observations() -> dict[str, Histogram]:
    return {name: Histogram([0] * (len(bounds) + 1)) for name, bounds in _BOUNDS.items()}


class Measured(msgspec.Struct):
    """The measurements of a worker since its start, or of all workers of a node, ended ones included."""

    histograms: dict[str, Histogram] = {}
    keys_evicted: int = 0
    """Live keys that were evicted because a detector reached its limits."""
    cpu_s: float = 0.0
    """The processor time of the process, or of all workers of a node."""
    shadows: dict[str, int] = {}
    """How often shadow rules fired, and the events of each kind in comparisons."""
    events: int = 0
    """Events that were evaluated."""
    actions: int = 0
    """Actions that evaluated events have caused."""
    refused: dict[int, int] = {}
    """Refused evaluations, and refused events of batches, by code."""
    ticks: int = 0
    """Ticks that moved a clock."""
    firings_by_time: int = 0
    firings: int = 0
    """Firings that were added to feeds."""

    def add(self, other: "Measured") -> None:
        """Add the measurements of another process."""
        for name, histogram in other.histograms.items():
            if name in self.histograms:
                self.histograms[name].add(histogram)
            else:
                self.histograms[name] = msgspec.structs.replace(histogram)
        for number in ("keys_evicted", "cpu_s", "events", "actions", "ticks", "firings_by_time", "firings"):
            setattr(self, number, getattr(self, number) + getattr(other, number))
        self.count_refused(other.refused)
        for name, times in other.shadows.items():
            self.shadows[name] = self.shadows.get(name, 0) + times

    def count_refused(self, refused: Mapping[int, int]) -> None:
        for code, times in refused.items():
            self.refused[code] = self.refused.get(code, 0) + times


class Measures(Measured):
    """The measurements of this process.

    Threads may observe concurrently. At worst an observation is lost, which is cheaper than a lock.
    """

    histograms: dict[str, Histogram] = msgspec.field(default_factory=_no_observations)

    def count_batch(self, before: Counted, after: Counted, refused: dict[int, int]) -> None:
        """Add the difference of a detector's counts before and after a batch, and the batch's refusals."""
        self.events += after.events - before.events
        self.actions += after.actions - before.actions
        self.keys_evicted += after.keys_evicted - before.keys_evicted
        self.ticks += after.ticks - before.ticks
        self.firings_by_time += after.firings_by_time - before.firings_by_time
        self.firings += after.firings - before.firings
        if refused:
            self.count_refused(refused)
            refused.clear()
        if before.shadows != after.shadows:
            for name, times in after.shadows.items():
                self.shadows[name] = self.shadows.get(name, 0) + times - before.shadows[name]

    def observe(self, name: str, value: float) -> None:
        histogram = self.histograms[name]
        histogram.within[bisect_left(_BOUNDS[name], value)] += 1
        histogram.total += value

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Observe the duration of the context if it succeeds."""
        began_s = time.perf_counter()
        yield
        self.observe(name, time.perf_counter() - began_s)


ACTIVATIONS: Final = "detectors_activated"
RECORDS_READ: Final = "journal_records_read"
SNAPSHOTS_WRITTEN: Final = "snapshots_written"
SNAPSHOTS_FAILED: Final = "snapshots_failed"
FENCED: Final = "owners_fenced"
ACTIVATIONS_FAILED: Final = "activations_failed"
JOURNAL_FAILED: Final = "journal_failures"
WITHOUT_ROOM: Final = "batches_without_room"
DETECTORS_LOST: Final = "detectors_lost"
DAMAGED: Final = "files_set_aside"
DIVERGED: Final = "detectors_diverged"
FORKS: Final = "detectors_forked"
DUE_ACTIVATIONS: Final = "due_activations"

DIRECTORIES_LOST: Final = "directories_lost"

FRONT_ENDS_LOST: Final = "front_ends_lost"
"""Counted by front ends, because no single detector is concerned."""

COUNTERS: Final = {
    ACTIVATIONS: "Detectors activated.",
    DUE_ACTIVATIONS: "Passive detectors activated for a tick.",
    RECORDS_READ: "Journal records replayed to activate detectors.",
    SNAPSHOTS_WRITTEN: "Snapshots written while their detectors stayed active.",
    SNAPSHOTS_FAILED: "Snapshots that could not be written.",
    FENCED: "Owners of detectors that were fenced by a later owner.",
    ACTIVATIONS_FAILED: "Activations that failed because of the detector's files or of the disk.",
    JOURNAL_FAILED: "Batches that could not be made durable; each causes the detector to be activated again.",
    WITHOUT_ROOM: "Batches that were refused because the disk was full.",
    DETECTORS_LOST: "Active detectors lost because their worker died, or hung and was killed.",
    DIRECTORIES_LOST: "Directory processes that were lost: killed, silent, or gone with their node.",
    DAMAGED: "Files set aside because they were torn or damaged.",
    FORKS: "Folders made for forks: detectors that begin with the state of another one.",
    DIVERGED: "Activations in whose replay other rules fired than in the original evaluation.",
}
