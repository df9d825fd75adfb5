"""When passive detectors have to be ticked, as far as that is known."""

import heapq
from typing import Final

_STALE: Final = 64
"""Places in the queue that may be out of date, besides as many as there are detectors."""


class DueTimes:
    """When something is due by time in each passive detector, in microseconds since 1970.

    A worker tells when a detector leaves it. If that is not known, its folder says it. What is noted while
    the folder is read is newer than what the folder says.
    """

    def __init__(self) -> None:
        self.unknown: dict[str, None] = {}
        """The detectors whose folders are to be looked at, in order."""
        self._looked_at: set[str] = set()
        """Those whose folders are being looked at, as long as nothing else is noted of them."""
        self._due_us: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []
        """A heap. Places that the dict does not confirm are out of date."""

    def __len__(self) -> int:
        return len(self._due_us)

    def note(self, detector_id: str, due_us: int | None) -> None:
        """Note when something is due; None says that nothing is, and 0 that it is not known."""
        self.forget(detector_id)
        if due_us == 0:
            self.unknown[detector_id] = None
        elif due_us is not None:
            self._due_us[detector_id] = due_us
            heapq.heappush(self._queue, (due_us, detector_id))
            if len(self._queue) > 2 * len(self._due_us) + _STALE:
                self._queue = [(at_us, one) for one, at_us in self._due_us.items()]
                heapq.heapify(self._queue)

    def forget(self, detector_id: str) -> None:
        """Forget what is known of a detector."""
        self._due_us.pop(detector_id, None)
        self.unknown.pop(detector_id, None)
        self._looked_at.discard(detector_id)

    def look_at(self, most: int) -> list[str]:
        """Return detectors whose folders are to be looked at now."""
        found = [detector_id for detector_id, _ in zip(self.unknown, range(most), strict=False)]
        for detector_id in found:
            del self.unknown[detector_id]
        self._looked_at.update(found)
        return found

    def found(self, detector_id: str, due_us: int | None, now_us: int) -> None:
        """Note what a folder says. If that does not say when something is due, it may be due now."""
        if detector_id in self._looked_at:
            self.note(detector_id, None if due_us is None else due_us or now_us)

    def take(self, now_us: int) -> str | None:
        """Return a detector in which something is due, and forget it; None if there is none."""
        while self._queue and self._queue[0][0] <= now_us:
            due_us, detector_id = heapq.heappop(self._queue)
            if self._due_us.get(detector_id) == due_us:
                self.forget(detector_id)
                return detector_id
        return None

    def overdue_us(self, now_us: int) -> int:
        """Return how long something has been due: the longest, 0 if nothing is."""
        return max(0, now_us - min(self._due_us.values(), default=now_us))

    def since_us(self, detector_id: str) -> int | None:
        """Return when something is due in a detector; None if nothing is, or it is not known when."""
        return self._due_us.get(detector_id)
