"""Turns of the event loop: a limit on what one turn reads from connections that send much."""

import asyncio
from collections import deque
from typing import Final, Protocol

from api.server.read_ahead import AHEAD_BYTES_MAX

TURN_BYTES: Final = 512 * 1024
"""The bytes that long reads may take in one turn of the loop; further ones wait for the next turn.

Without this limit, 64 connections with batches of 10000 events would have 16 MiB read in each turn, while a
small request needs some four turns."""


class Reader(Protocol):
    """What waits for its turn."""

    def turn_has_come(self) -> None:
        """Called when it may read on."""


class ReadingTurns:
    """Shares the turns of the loop among connections that send much. Short reads are not counted."""

    def __init__(self) -> None:
        self._left_bytes = TURN_BYTES
        self._waiting: deque[Reader] = deque()
        """The readers that wait for a turn, the longest waiting first."""
        self._is_renewed = True

    def take(self, reader: Reader, read_bytes: int) -> bool:
        """Take the bytes of a long read from this turn. If false, the reader waits for `turn_has_come`."""
        self._left_bytes -= read_bytes
        if self._is_renewed:
            self._is_renewed = False
            asyncio.get_running_loop().call_soon(self._renew)
        if self._left_bytes > 0:
            return True
        self._waiting.append(reader)
        return False

    def _renew(self) -> None:
        self._left_bytes = TURN_BYTES
        self._is_renewed = not self._waiting
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._renew)
        # Each may read ahead to its limit.
        for _ in range(min(len(self._waiting), TURN_BYTES // AHEAD_BYTES_MAX)):
            self._waiting.popleft().turn_has_come()
