"""The request metrics of one front end."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from engine.runtime.contract.figures import Counts

REQUESTS: Final = "requests"
"""The count of requests by operation and status."""
REFUSALS: Final = "refusals"
"""The count of refused requests by operation and the first code of their errors."""
THROTTLED: Final = "throttled"
"""The count of requests that got 1401, by cause."""
SECONDS: Final = "seconds"
"""The total duration of requests by operation, in seconds."""
WITHIN: Final = "within"
"""The count of requests by operation and the index of their histogram bucket, not cumulative."""

CAUSES: Final = {
    "no_room": "work was refused with 1401",
    "unread": "a connection was closed because its answers were not read",
}
"""What happens when the memory of a front end is used up."""
OUT_OF_MEMORY: Final = "out_of_memory"
"""The count of these events by cause."""

THROTTLED_CAUSES: Final = {
    "queue": "--max-waiting requests waited for the detector",
    "bytes": "those that waited for it had --max-waiting-bytes",
    "memory": "the front end had no memory for the request",
    "reading": "or for its body",
    "answers": "or for its answer; or answers kept for idempotency keys had --max-answers-kept-bytes",
}
"""Why requests got 1401."""

EXPIRED: Final = "expired"
"""The count of requests that were not sent to their detector by their deadline, by cause."""
EXPIRED_CAUSES: Final = {
    "slots": "all slots of --max-resident were taken, and the detector was not active",
    "starting": "the detector was being activated",
    "busy": "it was busy with earlier requests",
}
"""What these requests waited for. They got 1501."""

SPANS: Final = "spans"
"""The count of spans, by outcome."""
SPANS_SENT: Final = "sent"
SPANS_QUEUE_FULL: Final = "queue_full"
SPANS_LOST: Final = "lost"
SPAN_OUTCOMES: Final = {
    SPANS_SENT: "the collector took them",
    SPANS_LOST: "the collector did not take them",
    SPANS_QUEUE_FULL: "they were dropped because too many waited for the collector",
}
"""The outcomes of spans."""

CALLER_GONE: Final = 499
"""The status under which requests are counted whose caller left before the end. It is never sent."""

BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""The upper bounds of the histogram's buckets, without the last, which is infinite."""


class RequestMetrics:
    """Counts requests by operation and status, and their durations, at the cost of a few additions each."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._within: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS_S) + 1))
        self._seconds: dict[str, float] = defaultdict(float)
        self._others: Counter[tuple[str, ...]] = Counter()

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self._requests[operation, status] += 1
        self._within[operation][bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds[operation] += seconds

    def count_refusal(self, operation: str, code: int) -> None:
        """Count an error of a request, or one that has ended a stream."""
        self._others[REFUSALS, operation, str(code)] += 1

    def count_causes(self, name: str, causes: Mapping[str, int]) -> None:
        """Add to THROTTLED, EXPIRED, SPANS or OUT_OF_MEMORY, by cause or outcome."""
        for cause, times in causes.items():
            self._others[name, cause] += times

    def take(self) -> Counts:
        """Return the counts since the last call."""
        taken: dict[tuple[str, ...], float] = {**self._others}
        for (operation, status), count in self._requests.items():
            taken[REQUESTS, operation, str(status)] = count
        for operation, within in self._within.items():
            taken |= {(WITHIN, operation, str(bound)): count for bound, count in enumerate(within) if count}
            taken[SECONDS, operation] = self._seconds[operation]
        for counted in (self._requests, self._within, self._seconds, self._others):
            counted.clear()
        return taken
