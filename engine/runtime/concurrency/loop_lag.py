"""Measures how late an event loop runs what is due, because it or the machine is busy."""

import asyncio
from collections import deque
from typing import Final

_LOOK_S: Final = 0.5
_KEPT: Final = 30
"""Measurements that count, those of fifteen seconds: the interval at which most monitors look."""


class LoopLag:
    """Measures twice a second how late a timer of the running loop fires."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._lags_s: deque[float] = deque([0.0], maxlen=_KEPT)

    @property
    def longest_s(self) -> float:
        """The longest delay in the last seconds, including that of a timer that is overdue now."""
        overdue_s = 0.0 if self._timer is None else self._loop.time() - self._timer.when()
        return max(*self._lags_s, overdue_s)

    def start(self) -> None:
        """Begin to measure."""
        self._timer = self._loop.call_later(_LOOK_S, self._look)

    def end(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        assert self._timer is not None, "it was set"
        self._lags_s.append(self._loop.time() - self._timer.when())
        self.start()
