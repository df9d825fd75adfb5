"""Turns for threads that compute for long: one of them at a time, each for a short while."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, Self

_TURN_S: Final = 0.01


class Turn(Protocol):
    """What a thread holds while it computes."""

    def __enter__(self) -> object:
        """Wait for the turn."""

    def __exit__(self, *_: object) -> None:
        """End it."""

    def pass_on(self) -> None:
        """Let others go first if some wait and this turn was long enough; return in the next turn."""


class Turns:
    """Gives turns in the order in which threads ask for them.

    Only one thread runs Python code at a time. If several compute, any other thread waits some milliseconds
    for each of them before it continues. With turns, it waits for one.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._guard = threading.Lock()
        self._taken = False
        self._since_s = 0.0
        self._waiting: deque[threading.Lock] = deque()
        """A lock for each thread that waits, which is released when its turn comes."""

    def __enter__(self) -> Self:
        """Wait for the turn."""
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._give()

    def pass_on(self) -> None:
        """Do what `Turn.pass_on` says."""
        if self._waiting and self._now_s() - self._since_s >= _TURN_S:
            self._give()
            self._take()

    def _take(self) -> None:
        with self._guard:
            comes = threading.Lock() if self._taken else None
            if comes is not None:
                comes.acquire()
                self._waiting.append(comes)
            self._taken = True
        if comes is not None:
            comes.acquire()
        self._since_s = self._now_s()

    def _give(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


class _Free:
    """The turn of a thread that need not wait for others."""

    def __enter__(self) -> object:
        """Go on at once."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def pass_on(self) -> None:
        """Go on."""


FREE: Final[Turn] = _Free()
