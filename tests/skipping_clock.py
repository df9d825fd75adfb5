"""An event loop that does not wait: when nothing is ready, its clock jumps to the next timer.

Tests take the same time on every machine, however busy. It is for code in one thread: while another thread
works, the clock is ahead of it.
"""

import asyncio
import selectors
from typing import Any

TURN_S = 0.0001
"""How long each turn of the loop takes, so that time passes for code that is always busy."""


class Skipping(selectors.DefaultSelector):
    """Does not wait; the clock jumps instead."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(None if timeout is None else 0)
        self.now_s += timeout if timeout and not found else TURN_S
        return found


class SkippingLoop(asyncio.SelectorEventLoop):
    """The loop. A test may also move `clock` forward."""

    def __init__(self) -> None:
        self.clock = Skipping()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now_s
