"""How busy each detector of a worker is, and which one has to leave because it takes too much."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from engine.runtime.contract.figures import DetectorFigures

SHARE_MAX: Final = 0.25
"""The share of a processor from which on a detector gets a worker of its own."""
LARGE: Final = 0.25
"""The share of the worker's memory from which on a detector that has to leave gets a worker of its own."""


class Leaver(NamedTuple):
    """The detector that must leave."""

    epoch: int
    alone: bool
    """Whether it must have a worker of its own, or only a place in another worker."""


def leaver(detectors: Sequence[DetectorFigures], resident_bytes: int, bytes_max: int) -> Leaver | None:
    """Return which of the detectors of a worker must leave it; None if none must.

    At most one detector leaves at a time: without it, the loads of the others may be fine.
    """
    if len(detectors) <= 1:
        return None
    busiest = max(detectors, key=lambda one: one.cpu)
    if busiest.cpu > SHARE_MAX:
        return Leaver(busiest.epoch, alone=True)
    if resident_bytes > bytes_max:
        largest = max(detectors, key=lambda one: one.held_bytes)
        return Leaver(largest.epoch, alone=largest.held_bytes > LARGE * bytes_max)
    return None


class Totals(NamedTuple):
    """What a detector has evaluated and used until now."""

    events: int
    cpu_s: float
    """The processor time of its batches."""


class Rates(NamedTuple):
    """How busy a detector is."""

    events_per_s: float = 0.0
    cpu: float = 0.0
    """The processors that it takes: 1 is all of one."""


class RateMeter:
    """Measures the detectors of a process between two calls of `measure`.

    A detector that is alone in the process takes all of its processor time.
    """

    def __init__(self, process_s: Callable[[], float] = time.process_time) -> None:
        self._process_s = process_s
        self._before: Mapping[int, Totals] = {}
        self._measured_s = 0.0
        self._used_s = 0.0

    def measure(self, now_s: float, totals: Mapping[int, Totals]) -> dict[int, Rates]:
        """Return the rates since the last call, by epoch. A detector that is new has none yet."""
        seconds, used_s = now_s - self._measured_s, self._process_s()
        before, process_s = self._before, used_s - self._used_s
        self._before, self._measured_s, self._used_s = totals, now_s, used_s
        alone = len(totals) == 1
        return {
            epoch: Rates(
                (now.events - before[epoch].events) / seconds,
                (process_s if alone else now.cpu_s - before[epoch].cpu_s) / seconds,
            )
            for epoch, now in totals.items()
            if epoch in before
        }
