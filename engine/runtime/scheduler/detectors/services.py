"""The services that all placed detectors share."""

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from engine.runtime.catalogue.catalogue_client import CatalogueClient
from engine.runtime.contract import measures
from engine.runtime.contract.requests.calls import Activated, Report
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.detectors.activation_slots import ActivationSlots
from engine.runtime.scheduler.detectors.due_times import DueTimes
from engine.runtime.scheduler.workers.worker_pool import WorkerPool

_log = logging.getLogger(__name__)

_LASTING_KEPT: Final = 100


class Problems:
    """The known problems. Each is logged once, when it becomes known."""

    def __init__(self) -> None:
        self.lasting: list[str] = []
        """The latest problems that cannot be undone, such as a damaged file."""
        self.current: dict[str, str] = {}
        """Why a detector cannot be activated or saved now, by its id."""

    def note(self, problem: str) -> None:
        """Add a problem that cannot be undone."""
        _log.error("%s", problem)
        self.lasting = [*self.lasting, problem][-_LASTING_KEPT:]

    def begin(self, detector_id: str, problem: str) -> None:
        """Note a detector's problem, which replaces an earlier one."""
        problem = f"detector {detector_id}: {problem}"
        if self.current.get(detector_id) != problem:
            self.current[detector_id] = problem
            _log.error("%s", problem)

    def end(self, detector_id: str) -> None:
        self.current.pop(detector_id, None)


@dataclass(frozen=True, slots=True)
class Services:
    """The services that all placed detectors share, and counts over all detectors."""

    settings: RuntimeSettings
    workers: WorkerPool
    slots: ActivationSlots
    catalogue: CatalogueClient
    problems: Problems = field(default_factory=Problems)
    alone: set[str] = field(default_factory=set)
    """The ids of detectors that need a worker of their own."""
    journals: set[str] = field(default_factory=set)
    """The ids of detectors that may have been passivated with events in their journals."""
    dues: DueTimes = field(default_factory=DueTimes)
    newest_firings: dict[str, int] = field(default_factory=dict)
    """The number of the newest firing in each detector's feed, as far as workers have reported it."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often each event in `COUNTERS` happened, over all detectors."""

    def activated(self, detector_id: str, activated: Activated) -> None:
        """Note the result of an activation."""
        self.counts[measures.ACTIVATIONS] += 1
        self.counts[measures.RECORDS_READ] += activated.records
        self.counts[measures.DAMAGED] += len(activated.damage)
        self.problems.end(detector_id)
        # Its worker ticks it now.
        self.dues.forget(detector_id)
        if activated.read_only is not None:
            self.problems.begin(detector_id, f"it is read-only: {activated.read_only}")
        for damage in activated.damage:
            self.problems.note(f"detector {detector_id}: set aside: {damage}")
        if activated.diverged is not None:
            self.counts[measures.DIVERGED] += 1
            message = f"{activated.diverged}; answers before and after the restart differ for these events"
            self.problems.note(f"detector {detector_id}: {message}")

    def lost(self, detector_id: str) -> None:
        """Note that a detector was lost with its worker."""
        self.counts[measures.DETECTORS_LOST] += 1
        self.dues.note(detector_id, 0)

    def reported(self, detector_id: str, report: Report) -> None:
        """Note a worker's report about a detector, even about one that it no longer has."""
        self.counts.update(report.counts)
        if (ended := report.ended) is not None:
            if ended.journal:
                self.journals.add(detector_id)
            self.dues.note(detector_id, ended.due_us if ended.reason is None else 0)
        if report.problem:
            self.problems.begin(detector_id, report.problem)
        elif report.problem is not None:
            self.problems.end(detector_id)
        if report.newest_firing:
            self.newest_firings[detector_id] = report.newest_firing
        if report.removed is not None:
            self.problems.note(f"detector {detector_id}: {report.removed}")
