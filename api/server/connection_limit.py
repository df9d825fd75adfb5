"""The bounds of connections: how many there may be, which one is evicted, and how long one waits."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from api.server.flow_control import ReadAhead, ReadingTurns, RequestTurns, UnfinishedHeads
from engine.runtime.front_end.memory_budget import MemoryBudget

_log = logging.getLogger(__name__)

_WARN_AGAIN_S: Final = 60.0
"""The interval between two warnings that connections are evicted."""

AHEAD_BYTES_MAX_OF_ALL: Final = 32 * 1024 * 1024
"""How much is read ahead on all connections together, unless the settings say otherwise."""

_HEADS_SHARE: Final = 4
"""The share of unfinished heads in what is read ahead is 1 / _HEADS_SHARE."""

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""What callers may have a front end hold, unless the settings say otherwise."""

STATE: Final = "slot"
"""The key of the connection's slot in a request's ASGI state."""


class RequestBounds(NamedTuple):
    """The bounds of each request."""

    head_bytes_max: int
    discard_bytes_max: int
    """How much of a refused body is read, so that the caller can read the response."""
    deadline_s: float


class ConnectionLimit:
    """The open connections, at most `connections_max` of them.

    At the limit, a new connection evicts the oldest one that never authenticated, otherwise the one that has
    been idle longest. A connection with an authenticated request under way is never evicted. So a caller
    without a token who opens any number of connections evicts only others without one.
    """

    def __init__(
        self,
        connections_max: int,
        ahead_bytes_max: int = AHEAD_BYTES_MAX_OF_ALL,
        memory: MemoryBudget | None = None,
    ) -> None:
        assert connections_max > 0, "at least one connection is served"
        self.connections_max = connections_max
        self.memory = MemoryBudget(MEMORY_BYTES_MAX) if memory is None else memory
        self.ahead = ReadAhead(ahead_bytes_max, self.memory)
        self.heads = UnfinishedHeads(ahead_bytes_max // _HEADS_SHARE)
        self.turns = ReadingTurns()
        self.requests = RequestTurns()
        self._unauthenticated: dict[Slot, None] = {}
        """The connections that have not authenticated, in order of arrival."""
        self._idle: dict[Slot, None] = {}
        """The authenticated connections without a request under way, in order of their last request."""
        self._all: set[Slot] = set()
        self._warned_s = -_WARN_AGAIN_S
        self.leaving = False
        """Whether each response is the last on its connection, and says so."""
        self.ending = False
        """Whether a connection that waits for another request is closed after a short time."""

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, abort: Callable[[], None], end_if_idle: Callable[[], None]) -> "Slot":
        """Return the slot of a new connection; at the limit, evict another connection."""
        slot = Slot(self, abort, end_if_idle)
        self._all.add(slot)
        self._unauthenticated[slot] = None
        if len(self._all) > self.connections_max:
            oldest = next(iter(self._unauthenticated))
            # The new connection is evicted only where no other can be.
            evicted = oldest if oldest is not slot else next(iter(self._idle), slot)
            self.remove(evicted)
            evicted.abort()
            self._warn()
        return slot

    def _warn(self) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s >= _WARN_AGAIN_S:
            self._warned_s = now_s
            _log.warning(
                "the limit of %d connections is reached; new ones evict others", self.connections_max
            )

    def exempt(self, slot: "Slot") -> None:
        """Exempt a slot from eviction, until `set_idle`."""
        self._unauthenticated.pop(slot, None)
        self._idle.pop(slot, None)

    def set_idle(self, slot: "Slot") -> None:
        """Mark a connection as waiting for its next request."""
        if slot in self._all and slot not in self._unauthenticated and slot not in self._idle:
            self._idle[slot] = None

    def remove(self, slot: "Slot") -> None:
        """Free a slot, if it is not free already."""
        self._all.discard(slot)
        self.exempt(slot)

    def leave(self) -> None:
        """Make each response the last on its connection from now on, and have it say so."""
        self.leaving = True

    def end(self) -> None:
        """Close connections that have been idle for a short time, now and from now on."""
        self.leaving = True
        self.ending = True
        for slot in list(self._all):
            slot.end_if_idle()


@dataclass(slots=True, eq=False)
class Slot:
    """The slot of one connection under the limit."""

    _limit: ConnectionLimit
    abort: Callable[[], None]
    """Aborts the connection."""
    end_if_idle: Callable[[], None]
    """Closes the connection soon if it is idle."""
    is_authenticated: bool = False
    """Whether a request on the connection had a valid token."""

    def mark_authenticated(self) -> None:
        """Mark the connection as having an authenticated request under way, until `set_idle`."""
        self.is_authenticated = True
        self._limit.exempt(self)

    def set_idle(self) -> None:
        """Mark the connection as waiting for its next request."""
        self._limit.set_idle(self)

    def leave(self) -> None:
        """Free the slot: the connection is closed."""
        self._limit.remove(self)


_LAST_LOOK_S: Final = 0.02
"""The delay before an idle connection is ended: what has arrived may not have been read yet."""


@dataclass(eq=False)
class IdleTimeout:
    """Calls `expired` when a connection has waited for too long.

    A wait that ends in time costs no timer: the running timer finds the next deadline when it fires.
    """

    _loop: asyncio.AbstractEventLoop
    _expired: Callable[[], None]
    _since_s: float = 0.0
    _until_s: float = math.inf
    _timer: asyncio.TimerHandle | None = None
    _timer_s: float = math.inf

    @property
    def is_waiting(self) -> bool:
        """Whether a wait is under way."""
        return self._until_s != math.inf

    def wait(self, within_s: float) -> None:
        """Begin to wait, for at most `within_s`."""
        self._since_s = self._loop.time()
        self._set(self._since_s + within_s)

    def shorten(self, within_s: float) -> None:
        """Limit the wait under way, if any, to `within_s` from its beginning."""
        if self.is_waiting:
            self._set(min(self._until_s, self._since_s + within_s))

    def stop(self) -> None:
        """End the wait: what was waited for has arrived."""
        self._until_s = math.inf

    def cancel(self) -> None:
        """Stop for good."""
        self.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, until_s: float) -> None:
        self._until_s = until_s
        if self._timer is None or self._timer_s > until_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_s = until_s
            self._timer = self._loop.call_at(until_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._loop.time() < self._until_s - 0.001:
            if self.is_waiting:
                self._set(self._until_s)
        else:
            until_s = self._until_s
            self._timer_s = math.inf
            self._timer = self._loop.call_later(_LAST_LOOK_S, self._look_last, until_s)

    def _look_last(self, until_s: float) -> None:
        self._timer = None
        if self._until_s == until_s:
            self._until_s = math.inf
            self._expired()
        elif self.is_waiting:
            self._set(self._until_s)
