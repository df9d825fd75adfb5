"""The request timeout: ends the work on a request at its deadline, or when the caller has gone."""

import asyncio
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from api.schema.envelope import DeadlinePassed
from api.server.exchange import CallerGone, Receive, until_gone
from api.server.limits import Slot
from engine.runtime.contract.requests.operations import current_request
from engine.runtime.front_end.permits import Permit

_TICK_S: Final = 0.05

BACKSTOP_S: Final = 2.0
"""How long a request may exceed its deadline, so that the component that works on it can report first."""

OTHER: Final = "other"
"""The operation name of a request that matches no operation."""
EVALUATIONS_STREAM: Final = "evaluate_stream"
TIMELINE_STREAM: Final = "timeline_stream"
FIRINGS_STREAM: Final = "firings_stream"
STREAMS: Final = frozenset({EVALUATIONS_STREAM, TIMELINE_STREAM, FIRINGS_STREAM})
"""The operations under which metrics and the log count streams, which may take any time."""


@dataclass(eq=False)
class RequestTimeouts:
    """The requests in progress.

    Most requests are answered within a few milliseconds. A timer for each, or a task that waits for the end
    of each connection, would cost more than the request. So a shared tick starts both only for the requests
    that are still in progress after one to two ticks.

    A body must arrive within `deadline_s`. The work after it may take BACKSTOP_S longer, and a long operation
    `more_s` longer still.
    """

    deadline_s: float
    _young: "set[RequestTimeout]" = field(default_factory=set)
    _older: "set[RequestTimeout]" = field(default_factory=set)
    _ticking: bool = False

    def add(self, request_timeout: "RequestTimeout") -> None:
        """Register a new request."""
        self._young.add(request_timeout)
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def remove(self, request_timeout: "RequestTimeout") -> None:
        """Remove a finished request."""
        self._young.discard(request_timeout)
        self._older.discard(request_timeout)

    def _tick(self) -> None:
        for request_timeout in self._older:
            request_timeout.start()
        self._older, self._young = self._young, set()
        self._ticking = bool(self._older)
        if self._ticking:
            asyncio.get_running_loop().call_later(_TICK_S, self._tick)


@dataclass(slots=True, eq=False)
class RequestTimeout:
    """Cancels its blocks at the deadline or when the caller has gone, and raises the reason instead.

    Also holds the facts about the request for its metrics and its log.
    """

    _timeouts: RequestTimeouts
    _receive: Receive
    _slot: Slot | None
    _since_s: float = field(default_factory=time.monotonic)
    body_is_read: bool = False
    is_authenticated: bool = False
    operation: str = OTHER
    """The name of the operation, once it is known."""
    more_s: float = 0.0
    """How much longer than others the operation may take."""
    stream_error: bytes = b""
    """The error that ended a stream after its status was sent, as a response."""
    _started: bool = False
    _timer: asyncio.TimerHandle | None = None
    _receiver: asyncio.Task[None] | None = None
    _reason: BaseException | None = None
    _task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._timeouts.add(self)
        return self

    @property
    def left_s(self) -> float:
        """The time to the deadline, negative after it."""
        return self._timeouts.deadline_s - self.elapsed_s

    @property
    def elapsed_s(self) -> float:
        """The time since the request began."""
        return time.monotonic() - self._since_s

    def mark_authenticated(self, permit: Permit) -> None:
        """Record that the caller's token is valid. The connection is then not evicted until the response."""
        self.is_authenticated = True
        current_request().token_id = permit.known_as
        if self._slot is not None:
            self._slot.mark_authenticated()

    def body_read(self) -> None:
        """Record that the body has been read, so that only the end of the connection can be received."""
        self.body_is_read = True
        if self._started:
            self._watch_connection()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timeouts.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._receiver is not None:
            self._receiver.cancel()
        # A cancellation from elsewhere at the same time takes precedence.
        reason, self._reason = self._reason, None
        if reason is not None and self._task is not None:
            others = self._task.uncancel()
            if kind is asyncio.CancelledError and not others:
                try:
                    raise reason from None
                finally:
                    # Avoids a reference cycle, because its traceback holds this frame.
                    del reason

    def start(self) -> None:
        """Start the timer of the deadline and, once the body is read, the wait for the connection's end."""
        self._started = True
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self.left_s), self._overdue)
        if self.body_is_read:
            self._watch_connection()

    def _overdue(self) -> None:
        if self.body_is_read:
            left_s = self.more_s + BACKSTOP_S
            self._timer = asyncio.get_running_loop().call_later(left_s, self.end, DeadlinePassed())
        else:
            self.end(DeadlinePassed())

    def _watch_connection(self) -> None:
        self._receiver = asyncio.get_running_loop().create_task(self._until_gone())

    async def _until_gone(self) -> None:
        await until_gone(self._receive)
        self.end(CallerGone())

    def end(self, reason: BaseException) -> None:
        """Cancel the block, which then raises the first reason given."""
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()
