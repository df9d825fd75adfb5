"""Limits over all connections: how much is read ahead, and how much one turn of the loop reads and begins."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from engine.runtime.front_end.memory_budget import MemoryBudget

AHEAD_BYTES_MAX: Final = 256 * 1024
"""The most bytes that are read ahead on a connection, give or take one read.

Large bodies need it: a batch of 5.5 MB took 3.5 s on a busy machine with 16 KiB, 0.4 to 1.2 s with this."""

UNCOUNTED_BYTES: Final = 4 * 1024
"""What each connection may hold even past the limit, so that none gets stuck. Most requests are smaller."""

READ_BYTES: Final = 64 * 1024

READ_BUFFER: Final = memoryview(bytearray(READ_BYTES))
"""Filled by each read from any socket, and copied before the next."""
_SHORT_BUFFER: Final = READ_BUFFER[:UNCOUNTED_BYTES]


class ReadAhead:
    """Keeps the bytes that are read ahead of the application within `bytes_max` over all connections."""

    def __init__(self, bytes_max: int, budget: MemoryBudget) -> None:
        self.bytes_max = bytes_max
        self._budget = budget
        self.held_bytes = 0
        self.buffer = self._buffer()
        """Where the next read goes. It is short while another long one could exceed the limit."""

    def change(self, more_bytes: int) -> None:
        """Count that many bytes more; fewer if negative."""
        self.held_bytes += more_bytes
        self._budget.change_bodies(more_bytes)
        self.buffer = self._buffer()

    @property
    def connection_bytes_max(self) -> int:
        """The number of bytes read ahead at which a connection stops reading."""
        return AHEAD_BYTES_MAX if self.buffer is READ_BUFFER else UNCOUNTED_BYTES

    def _buffer(self) -> memoryview:
        return READ_BUFFER if self.held_bytes + READ_BYTES <= self.bytes_max else _SHORT_BUFFER


class UnfinishedHeads:
    """Keeps the unfinished heads within `bytes_max` over all connections. Short ones are not counted.

    Past it the oldest lose their memory: a head is complete soon after its first byte, unless its caller is
    slow on purpose.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._held: dict[Callable[[], None], int] = {}
        """What each connection holds, by what it does if that memory goes to others; the oldest first."""

    def hold(self, lose: Callable[[], None], bytes_: int) -> None:
        """Have a connection hold that much from now on; 0 once its head is complete."""
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
"""The bytes that long reads may take in one turn of the loop; further ones wait for the next turn.

Without this limit, 64 connections with batches of 10000 events would have 16 MiB read in each turn, while a
small request needs some four turns."""

REQUESTS_MAX: Final = 16
"""The requests that one turn begins; further ones wait for the next turn.

A request takes some five turns, and each turn continues all that are begun. While 400 connections asked for
/healthz, a new caller was answered after 500 others without this limit, and after 70 with it. With half,
evaluations cost a front end some percent more."""


class ReadingTurns:
    """Shares the turns of the loop among connections that send much. Short reads are not counted."""

    def __init__(self) -> None:
        self._left_bytes = TURN_BYTES
        self._waiting: deque[Callable[[], None]] = deque()
        """Called when the turn of a reader has come, of the longest waiting first."""
        self._is_renewed = True

    def take(self, turn_has_come: Callable[[], None], read_bytes: int) -> bool:
        """Take the bytes of a long read from this turn. If false, the reader waits for its turn."""
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
        # Each may read ahead to its limit.
        for _ in range(min(len(self._waiting), TURN_BYTES // AHEAD_BYTES_MAX)):
            self._waiting.popleft()()


class RequestTurns:
    """Shares the turns of the loop among requests.

    What waits is begun in order. The first requests of connections have a queue of their own, which gets half
    of each turn: a new caller hardly waits, however many others are busy.
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
                # A request that waits is cancelled only at the end of the service.
                if waiting and not (turn := waiting.popleft()).done():
                    turn.set_result(None)
                    self._left -= 1
        self._is_renewed = self._left == REQUESTS_MAX
        if not self._is_renewed:
            asyncio.get_running_loop().call_soon(self._renew)
