"""An event loop that does not wait: when nothing is ready, its clock jumps to the next timer.

Tests take the same time on every machine, however busy. It is for code in one thread, and in threads that
make one call and end: the clock stands still until they have ended.
"""

import asyncio
import selectors
import threading
from typing import Any
from weakref import WeakSet

TURN_S = 0.0001
"""How long each turn of the loop takes, so that time passes for code that is always busy."""
THREAD_S = 1.0
"""How long the clock stands still, at most, for a thread that may never end."""


class Skipping(selectors.DefaultSelector):
    """Does not wait; the clock jumps instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._awaited = WeakSet(threading.enumerate())

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(None if timeout is None else 0)
        if timeout and not found and self._await_threads():
            found = super().select(0)
        self.now_s += timeout if timeout and not found else TURN_S
        return found

    def _await_threads(self) -> bool:
        """Wait for threads that were started meanwhile, once for each; return whether there were any."""
        # Threads of an executor are no daemons, and wait for more calls.
        started = [
            one for one in threading.enumerate() if one.daemon and one.is_alive() and one not in self._awaited
        ]
        for thread in started:
            self._awaited.add(thread)
            thread.join(THREAD_S)
        return bool(started)


class SkippingLoop(asyncio.SelectorEventLoop):
    """The loop. A test may also move `clock` forward."""

    def __init__(self) -> None:
        self.clock = Skipping()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now_s
