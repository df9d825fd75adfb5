"""When passive detectors must be ticked, as far as known."""

import heapq
from typing import Final

_STALE: Final = 64
"""The number of outdated entries in the heap that are tolerated, in addition to the number of detectors."""


class DueTimes:
    """When the next tick of each passive detector is due, in microseconds since 1970.

    A worker reports the time when the detector leaves it. If the time is unknown, it is read from the
    detector's folder. Reports that arrive during the reading are newer than the folder.
    """

    def __init__(self) -> None:
        self.unknown: dict[str, None] = {}
        """The detectors whose folders must be read, in order."""
        self._looked_at: set[str] = set()
        """The detectors whose folders are being read, unless something newer was noted meanwhile."""
        self._due_us: dict[str, int] = {}
        self._since_us: dict[str, int] = {}
        """Since when ticks have been due that were tried in vain, and will be tried again."""
        self._queue: list[tuple[int, str]] = []
        """A heap. Entries that differ from the dict are outdated."""

    def __len__(self) -> int:
        return len(self._due_us)

    def note(self, detector_id: str, due_us: int | None, since_us: int | None = None) -> None:
        """Note when a tick is due; None means never, and 0 that it is unknown.

        If it has been due since `since_us`, `due_us` is when to try again.
        """
        self.forget(detector_id)
        if due_us == 0:
            self.unknown[detector_id] = None
        elif due_us is not None:
            self._due_us[detector_id] = due_us
            if since_us is not None:
                self._since_us[detector_id] = since_us
            heapq.heappush(self._queue, (due_us, detector_id))
            if len(self._queue) > 2 * len(self._due_us) + _STALE:
                self._queue = [(at_us, one) for one, at_us in self._due_us.items()]
                heapq.heapify(self._queue)

    def forget(self, detector_id: str) -> None:
        """Forget a detector."""
        self._due_us.pop(detector_id, None)
        self._since_us.pop(detector_id, None)
        self.unknown.pop(detector_id, None)
        self._looked_at.discard(detector_id)

    def look_at(self, most: int) -> list[str]:
        """Return detectors whose folders must be read now."""
        found = [detector_id for detector_id, _ in zip(self.unknown, range(most), strict=False)]
        for detector_id in found:
            del self.unknown[detector_id]
        self._looked_at.update(found)
        return found

    def found(self, detector_id: str, due_us: int | None, now_us: int) -> None:
        """Note the time read from a folder. If that is unknown, a tick may be due now."""
        if detector_id in self._looked_at:
            self.note(detector_id, None if due_us is None else due_us or now_us)

    def take(self, now_us: int) -> tuple[int, str] | None:
        """Return since when a tick is due and of which detector, and forget it; None if there is none."""
        while self._queue and self._queue[0][0] <= now_us:
            due_us, detector_id = heapq.heappop(self._queue)
            if self._due_us.get(detector_id) == due_us:
                since_us = self._since_us.get(detector_id, due_us)
                self.forget(detector_id)
                return since_us, detector_id
        return None

    def overdue_us(self, now_us: int) -> int:
        """Return how long the most overdue tick has been due; 0 if none is."""
        return max(0, now_us - min([now_us, *self._due_us.values(), *self._since_us.values()]))

    def since_us(self, detector_id: str) -> int | None:
        """Return when the tick of a detector is due; None if never or unknown."""
        return self._due_us.get(detector_id)
