"""The services and callbacks that all placed detectors share."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.runtime.catalogue.directory_client import DirectoryClient
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.placement.activation_slots import ActivationSlots
from engine.runtime.placement.workers import DetectorWorkers


@dataclass(frozen=True, slots=True)
class Services:
    """The services and callbacks that all placed detectors share."""

    settings: RuntimeSettings
    workers: DetectorWorkers
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
