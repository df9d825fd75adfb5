"""Shows in Ray's own tools which detectors a worker has: as the name of a task that runs while it has them.

Ray fixes the name of an actor when it starts, and workers are reused. But `ray list tasks` and the dashboard
show the name of each running task, with its actor and node.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Final

_LOOK_S: Final = 2.0
_NAMED_MAX: Final = 3


class ShownDetectors:
    """Keeps one task running that is named after the detectors of this worker."""

    def __init__(self, begin: Callable[[str, int], object], held: Callable[[], Mapping[str, str]]) -> None:
        """`begin` has Ray execute `run` as a task with a name; `held` returns the detectors' names by id."""
        self._begin = begin
        self._held = held
        self._changed = threading.Condition()
        self._number = 0
        """The number of the task that is to run; each earlier one ends."""

    def run(self, number: int) -> None:
        """Execute the task with this number: block until its name is no longer true."""
        with self._changed:
            self._changed.wait_for(lambda: self._number != number)

    async def keep(self, look_s: float = _LOOK_S) -> None:
        """Name the task anew whenever the detectors have changed and then stayed for one look."""
        shown = before = task_name(self._held())
        while True:
            await asyncio.sleep(look_s)
            now = task_name(self._held())
            if now == before != shown:
                shown = now
                with self._changed:
                    self._number += 1
                    self._changed.notify_all()
                if now:
                    self._begin(now, self._number)
            before = now


def task_name(detectors: Mapping[str, str]) -> str:
    """Return the name of the task of a worker with these detectors, given as names by id; empty without any.

    Other detectors may have the same names, so the ids are there too.
    """
    shown = sorted(f"{' '.join(name.split())} ({detector_id})" for detector_id, name in detectors.items())
    first = shown[:_NAMED_MAX]
    more = len(shown) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
