"""An event loop whose clock runs while the loop waits, and hardly while it works or is kept from working.

So if both ends of a conversation are in one process, a busy machine makes neither of them late.
"""

import asyncio
import selectors
import time
from typing import Any

TURN_S_MAX = 0.001
"""How long a turn of the loop counts at most, so that time passes for code that is always busy."""


class Waiting(selectors.DefaultSelector):
    """Measures how long it waits, but at most the time-out."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._left_s = time.monotonic()

    def select(self, timeout: float | None = None) -> list[Any]:
        entered_s = time.monotonic()
        self.now_s += min(entered_s - self._left_s, TURN_S_MAX)
        found = super().select(timeout)
        self._left_s = time.monotonic()
        waited_s = self._left_s - entered_s
        self.now_s += waited_s if timeout is None else min(waited_s, timeout)
        return found


class WaitingLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._clock = Waiting()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s
