"""What front ends and the scheduler tell each other of the state of the service."""

from collections.abc import Mapping

import msgspec

Counts = Mapping[tuple[str, ...], float]
"""Increments of front-end metrics, by name and labels."""


class Status(msgspec.Struct, frozen=True):
    """The state of the scheduler and its detectors."""

    reasons: list[str]
    """Why requests cannot be served now."""
    problems: list[str]
    """Problems that do not prevent serving."""
    active_detectors: int
    """The number of active detectors."""
    detectors_with_problems: int
    """The number of detectors that cannot be activated or saved."""
    counts: dict[str, int]
    """Counts since the start, for each name of `counters.COUNTERS`."""
    front_end_counts: dict[tuple[str, ...], float]
    """The metrics of all front ends since the start."""
