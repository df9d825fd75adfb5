"""What this front end counts of the requests that it answers."""

from bisect import bisect_left
from collections import defaultdict
from typing import Final

from engine.runtime.broker.broker import Tallies

REQUESTS: Final = "requests"
"""A tally by operation and status."""
SECONDS: Final = "seconds"
"""A tally by operation: all that requests took, together."""
WITHIN: Final = "within"
"""A tally by operation and the number of a bound: how many took no longer, but longer than the one before."""

CALLER_GONE: Final = 499
"""The status under which requests are counted whose caller left before the end of the reply. None is sent."""

BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Of the times that requests take. One more follows, which has no end."""


class RequestMetrics:
    """Counts requests, each with its operation, status and time. Every request pays for it: it only adds."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._within: dict[str, list[int]] = defaultdict(_no_times)
        self._seconds: dict[str, float] = defaultdict(float)

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Take note of a request that came to its end."""
        self._requests[operation, status] += 1
        self._within[operation][bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds[operation] += seconds

    def take(self) -> Tallies:
        """Give what was counted since the last time."""
        taken: dict[tuple[str, ...], float] = {}
        for (operation, status), count in self._requests.items():
            taken[REQUESTS, operation, str(status)] = count
        for operation, within in self._within.items():
            taken |= {(WITHIN, operation, str(bound)): count for bound, count in enumerate(within) if count}
            taken[SECONDS, operation] = self._seconds[operation]
        self._requests.clear()
        self._within.clear()
        self._seconds.clear()
        return taken


def _no_times() -> list[int]:
    return [0] * (len(BOUNDS_S) + 1)
