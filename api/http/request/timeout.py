"""What ends the work on a request before it is done: its deadline, and a caller who has gone."""

import asyncio
import time
from types import TracebackType
from typing import Final, Self

from api.http.request.asgi import CallerGone, Receive
from api.schema.envelope import DeadlinePassed
from api.server.connection_limit import Place

_TICK_S: Final = 0.05

BACKSTOP_S: Final = 2.0
"""How long past its deadline a request may take, so that the part that knows what became of it can say so."""

OTHER: Final = "other"
"""What stands for an operation where none was recognised."""


class RequestTimeouts:
    """The requests under way.

    Most requests are answered within a few milliseconds, so a timer for each, or a task that waits for the
    end of each connection, would cost more than it is worth. A shared tick finds those that are still there
    after one to two ticks, and only these get both.

    A body must have come within `deadline_s`. What is done with it may take `backstop_s` longer, so that who
    knows what became of it can say so.
    """

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.backstop_s = BACKSTOP_S
        self._young: set[RequestTimeout] = set()
        self._older: set[RequestTimeout] = set()
        self._ticking = False

    def add(self, watch: "RequestTimeout") -> None:
        """Take note of a request that begins."""
        self._young.add(watch)
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def remove(self, watch: "RequestTimeout") -> None:
        """Take note of a request that ends."""
        self._young.discard(watch)
        self._older.discard(watch)

    def _tick(self) -> None:
        for watch in self._older:
            watch.begin()
        self._older, self._young = self._young, set()
        self._ticking = bool(self._older)
        if self._ticking:
            asyncio.get_running_loop().call_later(_TICK_S, self._tick)


class RequestTimeout:
    """Cancels what runs inside it at the deadline, or when the caller has gone; raises the reason instead."""

    __slots__ = (
        "_begun",
        "_looker",
        "_place",
        "_reason",
        "_receive",
        "_since_s",
        "_task",
        "_timer",
        "_watches",
        "body_is_read",
        "is_authenticated",
        "operation",
    )

    def __init__(self, watches: RequestTimeouts, receive: Receive, place: Place | None = None) -> None:
        self._watches = watches
        self._receive = receive
        self._place = place
        self._since_s = time.monotonic()
        self.body_is_read = False
        self.is_authenticated = False
        """Whether the caller has shown a token that is known."""
        self.operation = OTHER
        """What is asked for, once that is known."""
        self._begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._looker: asyncio.Task[None] | None = None
        self._reason: Exception | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._watches.add(self)
        return self

    @property
    def left_s(self) -> float:
        """How much time is left for the request; none where it is negative."""
        return self._watches.deadline_s - self.elapsed_s

    @property
    def elapsed_s(self) -> float:
        """How long ago the request began."""
        return time.monotonic() - self._since_s

    def mark_authenticated(self) -> None:
        """Say that the caller has shown a token that is known: the connection is kept for the request."""
        self.is_authenticated = True
        if self._place is not None:
            self._place.hold()

    def body_read(self) -> None:
        """Say that the body has been read: from now on only the end of the connection can be received."""
        self.body_is_read = True
        if self._begun:
            self._look()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watches.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._looker is not None:
            self._looker.cancel()
        # A cancellation from elsewhere may have come at the same time, and then counts.
        reason, self._reason = self._reason, None
        if reason is not None and self._task is not None:
            others = self._task.uncancel()
            if kind is asyncio.CancelledError and not others:
                try:
                    raise reason from None
                finally:
                    # Its traceback holds this frame; without that there is no cycle.
                    del reason

    def begin(self) -> None:
        """Begin to watch in earnest."""
        self._begun = True
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self.left_s), self._overdue)
        if self.body_is_read:
            self._look()

    def _overdue(self) -> None:
        if self.body_is_read:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._watches.backstop_s, self.end, DeadlinePassed())
        else:
            self.end(DeadlinePassed())

    def _look(self) -> None:
        self._looker = asyncio.get_running_loop().create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.end(CallerGone())

    def end(self, reason: Exception) -> None:
        """Cancel what runs inside; what is raised instead is the first reason that is given."""
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()
