"""Chooses the detector that must leave a worker, because it takes too much from the others there."""

from collections.abc import Mapping
from typing import Final, NamedTuple

SHARE_MAX: Final = 0.25
"""The share of a processor from which on a detector gets a worker of its own."""
LARGE: Final = 0.25
"""The share of the worker's memory from which on a detector that has to leave gets a worker of its own."""


class Load(NamedTuple):
    """What a detector takes of its worker."""

    cpu_s: float
    """Processor time in the period looked at."""
    held_bytes: int


class Leaver(NamedTuple):
    """The detector that must leave."""

    epoch: int
    alone: bool
    """Whether it must have a worker of its own, or only a place in another worker."""


def leaver(loads: Mapping[int, Load], seconds: float, resident_bytes: int, bytes_max: int) -> Leaver | None:
    """Return which detector must leave, given loads by epoch; None if none must.

    `seconds` is the length of the period. At most one detector leaves at a time: without it, the loads of the
    others may be fine.
    """
    if len(loads) <= 1:
        return None
    busiest = max(loads, key=lambda epoch: loads[epoch].cpu_s)
    if loads[busiest].cpu_s > SHARE_MAX * seconds:
        return Leaver(busiest, alone=True)
    if resident_bytes > bytes_max:
        largest = max(loads, key=lambda epoch: loads[epoch].held_bytes)
        return Leaver(largest, alone=loads[largest].held_bytes > LARGE * bytes_max)
    return None
