"""The bounds over all connections: their number, bytes read ahead, and the work of one loop iteration."""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.runtime.front_end.memory_budget import MemoryBudget

AHEAD_BYTES_MAX: Final = 256 * 1024
"""The maximum number of bytes read ahead on a connection, give or take one read.

Large bodies need it: a batch of 5.5 MB took 3.5 s on a busy machine with 16 KiB, 0.4 to 1.2 s with this."""

UNCOUNTED_BYTES: Final = 4 * 1024
"""What each connection may hold even beyond the limit, so that none gets stuck. Most requests are smaller."""

READ_BYTES: Final = 64 * 1024

READ_BUFFER: Final = memoryview(bytearray(READ_BYTES))
"""The buffer for reads from all sockets, copied after each read."""
_SHORT_BUFFER: Final = READ_BUFFER[:UNCOUNTED_BYTES]


class ReadAhead:
    """Limits the bytes that are read ahead of the application to `bytes_max` over all connections."""

    def __init__(self, bytes_max: int, budget: MemoryBudget) -> None:
        self.bytes_max = bytes_max
        self._budget = budget
        self.held_bytes = 0
        self.buffer = self._buffer()
        """The buffer for the next read. It is short while another long read could exceed the limit."""

    def change(self, more_bytes: int) -> None:
        """Change the number of bytes by a difference."""
        self.held_bytes += more_bytes
        self._budget.change_bodies(more_bytes)
        self.buffer = self._buffer()

    @property
    def connection_bytes_max(self) -> int:
        """The number of bytes at which a connection stops reading ahead."""
        return AHEAD_BYTES_MAX if self.buffer is READ_BUFFER else UNCOUNTED_BYTES

    def _buffer(self) -> memoryview:
        return READ_BUFFER if self.held_bytes + READ_BYTES <= self.bytes_max else _SHORT_BUFFER


class UnfinishedHeads:
    """Limits unfinished heads to `bytes_max` over all connections. Short heads do not count.

    Beyond it, the oldest heads lose their memory: a head is complete soon after its first byte, unless its
    caller is slow on purpose.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._held: dict[Callable[[], None], int] = {}
        """The bytes of each connection, oldest first, by the callback for losing the memory."""

    def hold(self, lose: Callable[[], None], bytes_: int) -> None:
        """Set the bytes of a connection; 0 once its head is complete."""
        before = self._held.get(lose, 0)
        if bytes_:
            self._held[lose] = bytes_
        elif before:
            del self._held[lose]
        self.held_bytes += bytes_ - before
        while self.held_bytes > self.bytes_max:
            oldest = next(iter(self._held))
            self.held_bytes -= self._held.pop(oldest)
            oldest()


TURN_BYTES: Final = 512 * 1024
"""The bytes of long reads in one iteration of the loop; further ones wait for the next iteration.

Without this limit, 64 connections with batches of 10000 events would cause 16 MiB of reads in each iteration,
while a small request needs some four iterations."""

REQUESTS_MAX: Final = 16
"""The requests that begin in one iteration of the loop; further ones wait for the next iteration.

A request takes some five iterations, each of which continues all requests in progress. While 400 connections
requested /healthz, a new caller was answered after 500 others without this limit, and after 70 with it. With
half of it, evaluations cost a front end some percent more."""


class ReadingTurns:
    """Shares the iterations of the loop among connections that send much. Short reads do not count."""

    def __init__(self) -> None:
        self._left_bytes = TURN_BYTES
        self._waiting: deque[Callable[[], None]] = deque()
        """The callbacks of waiting readers, longest-waiting first."""
        self._is_renewed = True

    def take(self, turn_has_come: Callable[[], None], read_bytes: int) -> bool:
        """Take the bytes of a long read from this iteration. If False, the reader waits for its turn."""
        self._left_bytes -= read_bytes
        if self._is_renewed:
            self._is_renewed = False
            asyncio.get_running_loop().call_soon(self._renew)
        if self._left_bytes > 0:
            return True
        self._waiting.append(turn_has_come)
        return False

    def _renew(self) -> None:
        self._left_bytes = TURN_BYTES
        self._is_renewed = not self._waiting
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._renew)
        # Each of them may read ahead up to its limit.
        for _ in range(min(len(self._waiting), TURN_BYTES // AHEAD_BYTES_MAX)):
            self._waiting.popleft()()


class RequestTurns:
    """Shares the iterations of the loop among requests.

    Waiting requests begin in order. The first requests of connections have their own queue, which gets half
    of each iteration, so that a new caller hardly waits, however many others are busy.
    """

    def __init__(self) -> None:
        self._left = REQUESTS_MAX
        self._first: deque[asyncio.Future[None]] = deque()
        self._later: deque[asyncio.Future[None]] = deque()
        self._is_renewed = True

    async def begin(self, *, is_first: bool) -> None:
        """Return when a request may begin; `is_first` says whether it is the first of its connection."""
        loop = asyncio.get_running_loop()
        if self._is_renewed:
            self._is_renewed = False
            loop.call_soon(self._renew)
        self._left -= 1
        if self._left < 0:
            turn = loop.create_future()
            (self._first if is_first else self._later).append(turn)
            await turn

    def _renew(self) -> None:
        self._left = REQUESTS_MAX
        while self._left > 0 and (self._first or self._later):
            for waiting in (self._first, self._later):
                # A waiting request is cancelled only at the end of the service.
                if waiting and not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    self._left -= 1
        self._is_renewed = self._left == REQUESTS_MAX
        if not self._is_renewed:
            asyncio.get_running_loop().call_soon(self._renew)


_log = logging.getLogger(__name__)

_WARN_AGAIN_S: Final = 60.0
"""The interval between two warnings that connections are evicted."""

AHEAD_BYTES_MAX_OF_ALL: Final = 32 * 1024 * 1024
"""The default for the bytes read ahead on all connections together."""

_HEADS_SHARE: Final = 4
"""Unfinished heads may take 1 / _HEADS_SHARE of the bytes read ahead."""

MEMORY_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The default for the memory that a front end may hold for callers."""

STATE: Final = "slot"
"""The key of the connection's slot in a request's ASGI state."""


class RequestBounds(NamedTuple):
    """The bounds of each request."""

    head_bytes_max: int
    discard_bytes_max: int
    """How many bytes of a refused body are read, so that the caller can read the response."""
    deadline_s: float


class ConnectionLimit:
    """The open connections, at most `connections_max` of them.

    At the limit, a new connection evicts the oldest one that never authenticated, otherwise the one that has
    been idle longest. A connection with an authenticated request in progress is never evicted. So a caller
    without a token, however many connections it opens, evicts only others without a token.
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
        """The authenticated connections without a request in progress, in order of their last request."""
        self._all: set[Slot] = set()
        self._warned_s = -_WARN_AGAIN_S
        self.leaving = False
        """Whether each response is the last on its connection, and has `Connection: close`."""
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
            # The new connection itself is evicted only if no other can be.
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
        """From now on, make each response the last on its connection, with `Connection: close`."""
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
        """Mark the connection as having an authenticated request in progress, until `set_idle`."""
        self.is_authenticated = True
        self._limit.exempt(self)

    def set_idle(self) -> None:
        """Mark the connection as waiting for its next request."""
        self._limit.set_idle(self)

    def leave(self) -> None:
        """Free the slot of a closed connection."""
        self._limit.remove(self)


_LAST_LOOK_S: Final = 0.02
"""The delay before an idle connection is ended, since bytes may have arrived but not been read yet."""


@dataclass(eq=False)
class IdleTimeout:
    """Calls `expired` when a connection has waited too long.

    A wait that ends in time needs no new timer: the running timer finds the next deadline when it fires.
    """

    _loop: asyncio.AbstractEventLoop
    _expired: Callable[[], None]
    _since_s: float = 0.0
    _until_s: float = math.inf
    _timer: asyncio.TimerHandle | None = None
    _timer_s: float = math.inf

    @property
    def is_waiting(self) -> bool:
        """Whether a wait is in progress."""
        return self._until_s != math.inf

    def wait(self, within_s: float) -> None:
        """Begin a wait of at most `within_s`."""
        self._since_s = self._loop.time()
        self._set(self._since_s + within_s)

    def shorten(self, within_s: float) -> None:
        """Limit the current wait, if any, to `within_s` from its beginning."""
        if self.is_waiting:
            self._set(min(self._until_s, self._since_s + within_s))

    def stop(self) -> None:
        """End the wait, because what it waited for has arrived."""
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
