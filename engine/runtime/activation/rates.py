"""How busy each detector of a worker is: events a second, and its share of a processor."""

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

MEASURED_S: Final = 5.0
"""The interval over which rates are measured."""


class Totals(NamedTuple):
    """What a detector has evaluated and used until now."""

    events: int
    cpu_s: float
    """The processor time of those of its batches that were executed beside other detectors."""


class Rates(NamedTuple):
    """How busy a detector is."""

    events_per_s: float = 0.0
    cpu: float = 0.0
    """The processors that it takes: 1 is all of one."""


class RateMeter:
    """Measures the detectors of a process between two calls of `measure`.

    A detector that is alone in the process takes all of its processor time: its batches are not timed.
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
