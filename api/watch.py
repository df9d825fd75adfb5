"""What ends the work on a request before it is done: its deadline, and a caller who has gone."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

from api.bodies import CallerGone
from api.envelope import DeadlinePassed

_GLANCE_S: Final = 0.05


class Watch:
    """Cancels what runs inside it at the deadline, or when the caller has gone; raises the reason instead.

    Most requests are answered within a few milliseconds, so all that one costs at first is a timer. Only a
    request that is still there when it goes off gets a task that waits for the end of its connection.
    """

    __slots__ = (
        "_deadline_s",
        "_glanced",
        "_looker",
        "_reason",
        "_receive",
        "_task",
        "_timer",
        "body_is_read",
    )

    def __init__(self, receive: Callable[[], Awaitable[Any]], deadline_s: float) -> None:
        self._receive = receive
        self._deadline_s = deadline_s
        self.body_is_read = False
        self._glanced = False
        self._looker: asyncio.Task[None] | None = None
        self._reason: type[Exception] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = loop.call_later(min(_GLANCE_S, self._deadline_s), self._glance)
        return self

    def body_read(self) -> None:
        """Say that the body has been read: from now on only the end of the connection can be received."""
        self.body_is_read = True
        if self._glanced:
            self._look()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._looker is not None:
            self._looker.cancel()
        # A cancellation from elsewhere may have come at the same time, and then counts.
        if self._reason is not None and self._task is not None:
            others = self._task.uncancel()
            if kind is asyncio.CancelledError and not others:
                raise self._reason from None

    def _glance(self) -> None:
        self._glanced = True
        remaining_s = max(0.0, self._deadline_s - _GLANCE_S)
        self._timer = asyncio.get_running_loop().call_later(remaining_s, self._end, DeadlinePassed)
        if self.body_is_read:
            self._look()

    def _look(self) -> None:
        self._looker = asyncio.ensure_future(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(CallerGone)

    def _end(self, reason: type[Exception]) -> None:
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()
