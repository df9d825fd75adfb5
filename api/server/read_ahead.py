"""Bytes read ahead of the application: one limit over all connections of a front end."""

from typing import Final, Protocol

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


class Unfinished(Protocol):
    """A connection whose request has an unfinished head."""

    def lose_head(self) -> None:
        """Called when the memory of its head goes to others."""


class UnfinishedHeads:
    """Keeps the unfinished heads within `bytes_max` over all connections. Short ones are not counted.

    Past it the oldest lose their memory: a head is complete soon after its first byte, unless its caller is
    slow on purpose.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self._held: dict[Unfinished, int] = {}
        """What each connection holds, the oldest first."""

    def hold(self, connection: Unfinished, bytes_: int) -> None:
        """Have a connection hold that much from now on; 0 once its head is complete."""
        before = self._held.get(connection, 0)
        if bytes_:
            self._held[connection] = bytes_
        elif before:
            del self._held[connection]
        self.held_bytes += bytes_ - before
        while self.held_bytes > self.bytes_max:
            oldest = next(iter(self._held))
            self.held_bytes -= self._held.pop(oldest)
            oldest.lose_head()
