"""Detects that another process or loop is silent, and measures how late this loop is.

Counts beats, not seconds: a process that was stopped, or whose loop was blocked, reads answers late that
arrived in time, and must not conclude that the others were silent.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_BEATS: Final = 12
"""The beats of `answer_within`."""


class Beats:
    """Counts consecutive unanswered beats."""

    def __init__(self) -> None:
        self.missed = 0

    def beat(self, *, answered: bool) -> None:
        """Note, when the next beat is due, whether the last one has been answered."""
        self.missed = 0 if answered else self.missed + 1

    async def count(
        self,
        send: Callable[[], Coroutine[Any, Any, None]],
        beat_s: float,
        lost: Callable[[], bool],
        counted: Callable[[], object] = lambda: None,
    ) -> None:
        """Send beats, one after another, until `lost` returns True.

        `send` returns once the beat is answered; `counted` is called after each beat. Raises what `send`
        raises.
        """
        sent: asyncio.Task[None] | None = None
        try:
            while not lost():
                if sent is None or sent.done():
                    sent = asyncio.create_task(send())
                held_up = await _one_beat(sent, beat_s)
                if sent.done():
                    sent.result()
                    await asyncio.sleep(beat_s)
                elif held_up:
                    continue
                self.beat(answered=sent.done())
                counted()
        finally:
            if sent is not None:
                sent.cancel()


async def answer_within(call: Awaitable[T], most_s: float) -> T:
    """Await an answer for some time, not counting time in which this loop is blocked. Raises TimeoutError."""
    asked = asyncio.ensure_future(call)
    left = _BEATS
    try:
        while left and not asked.done():
            left -= not await _one_beat(asked, most_s / _BEATS)
        if not asked.done():
            raise TimeoutError
        return asked.result()
    finally:
        if not asked.done():
            asked.cancel()
            await asyncio.wait({asked})


async def _one_beat(asked: asyncio.Future[Any], beat_s: float) -> bool:
    """Wait one beat for an answer; return whether this loop was blocked for another beat meanwhile.

    If so, it has not read yet what arrived in that time.
    """
    loop = asyncio.get_running_loop()
    late_s = loop.time() + 2 * beat_s
    await asyncio.wait({asked}, timeout=beat_s)
    return loop.time() >= late_s


_LOOK_S: Final = 0.5
_KEPT: Final = 30
"""The number of measurements kept, those of fifteen seconds: the usual scrape interval of monitors."""


class LoopLag:
    """Measures twice a second how late a timer of the running loop fires."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lags_s: deque[float] = deque([0.0], maxlen=_KEPT)
        self._begin()

    @property
    def longest_s(self) -> float:
        """The longest delay in the last seconds, including that of a currently overdue timer."""
        return max(*self._lags_s, self._loop.time() - self._timer.when())

    def end(self) -> None:
        self._timer.cancel()

    def _begin(self) -> None:
        self._timer = self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._lags_s.append(self._loop.time() - self._timer.when())
        self._begin()
