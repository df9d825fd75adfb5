"""What the activations of all detectors share."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.runtime.activation.activation_slots import ActivationSlots
from engine.runtime.activation.workers import DetectorWorkers
from engine.runtime.catalogue.directory_client import DirectoryClient
from engine.runtime.contract.settings import RuntimeSettings


@dataclass(frozen=True, slots=True)
class Services:
    """What the activations of all detectors share."""

    settings: RuntimeSettings
    workers: DetectorWorkers
    slots: ActivationSlots
    directory: DirectoryClient
    damaged: Callable[[str, str], None]
    """Takes a detector's id and which of its files had to be set aside."""
    diverged: Callable[[str, str], None]
    """Takes a detector's id and at which events other rules fire now than did at first."""
    removed: Callable[[str, str], None]
    """Takes a detector's id and what somebody has done to its files while it was awake."""
    trouble: Callable[[str, str | None], None]
    """Takes a detector's id and what keeps it from waking or being saved; None when nothing does any more."""
    counts: Counter[str] = field(default_factory=Counter)
    """What happened to all of them, how often: the names of `counters.COUNTERS`."""
