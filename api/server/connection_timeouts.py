"""The two time-outs of a connection: no request comes, or the caller does not read."""

import asyncio
import math
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import ioctl
from typing import Final

STALLED_S = 15.0
"""The interval between two checks that a caller reads what is sent."""

_TAKEN_BYTES_MIN: Final = 16 * 1024
"""The bytes that the caller must read between two checks, if that many are unsent."""

CHECKS_SAVED_MAX: Final = 8
"""How many checks a caller may fail that has read more before, or has just begun.

Systems tell what their programs have read in steps of up to 128 KiB, which is what one who reads as slowly as
allowed takes between that many checks.
"""

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


class StallWatch:
    """Aborts a connection whose caller reads less than 16 KiB, or what is left, between two checks.

    What is read beyond that counts for later checks, up to CHECKS_SAVED_MAX of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._saved: float = CHECKS_SAVED_MAX
        self._left = unsent_bytes(transport)
        self._timer = loop.call_later(STALLED_S, self._look)

    def _look(self) -> None:
        before, self._left = self._left, unsent_bytes(self._transport)
        wanted = min(_TAKEN_BYTES_MIN, before) or 1
        # More may have been sent meanwhile.
        taken = max(0, before - self._left)
        self._saved = min(CHECKS_SAVED_MAX, self._saved + taken / wanted - 1)
        if self._saved < 0 or not self._left:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(STALLED_S, self._look)

    def end(self) -> None:
        """Stop watching."""
        self._timer.cancel()


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Return how many bytes the caller's system has not acknowledged, those in ours included.

    The transport alone would tell of a slow caller's progress only once in some MiB.
    """
    waiting = transport.get_write_buffer_size()
    connected = transport.get_extra_info("socket")
    if connected is None:
        return waiting
    try:
        queued = ioctl(connected.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        # The connection is closed.
        return waiting
    return waiting + int.from_bytes(queued, sys.byteorder)
