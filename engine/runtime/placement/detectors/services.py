"""The services and callbacks that all placed detectors share."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.runtime.catalogue.directory_client import DirectoryClient
from engine.runtime.contract.measurements.counters import ACTIVATIONS, DAMAGED, DIVERGED, RECORDS_READ
from engine.runtime.contract.requests.calls import Activated, Report
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.placement.detectors.activation_slots import ActivationSlots
from engine.runtime.placement.workers.worker_pool import WorkerPool


@dataclass(frozen=True, slots=True)
class Services:
    """The services and callbacks that all placed detectors share."""

    settings: RuntimeSettings
    workers: WorkerPool
    slots: ActivationSlots
    directory: DirectoryClient
    damaged: Callable[[str, str], None]
    """Called with a detector's id and the damaged file that was set aside."""
    diverged: Callable[[str, str], None]
    """Called with a detector's id and the journal records at which other rules fired in the replay."""
    removed: Callable[[str, str], None]
    """Called with a detector's id and what happened to its files while it was active."""
    trouble: Callable[[str, str | None], None]
    """Called with a detector's id and why it cannot be activated or saved; None once it can be again."""
    alone: set[str] = field(default_factory=set)
    """The ids of detectors that take so much that each needs a worker of its own."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often each event of `counters.COUNTERS` happened, over all detectors."""

    def activated(self, detector_id: str, activated: Activated) -> None:
        """Note what an activation has found."""
        self.counts[ACTIVATIONS] += 1
        self.counts[RECORDS_READ] += activated.records
        self.counts[DAMAGED] += len(activated.damage)
        unwritable = activated.read_only
        self.trouble(detector_id, None if unwritable is None else f"it is read-only: {unwritable}")
        for damage in activated.damage:
            self.damaged(detector_id, damage)
        if activated.diverged is not None:
            self.counts[DIVERGED] += 1
            self.diverged(detector_id, activated.diverged)

    def reported(self, detector_id: str, report: Report) -> None:
        """Note what a worker reports of a detector, also if it has it no more."""
        self.counts.update(report.counts)
        if report.trouble is not None:
            self.trouble(detector_id, report.trouble or None)
        if report.removed is not None:
            self.removed(detector_id, report.removed)
