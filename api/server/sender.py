"""The sending half of a connection, and its end."""

import asyncio
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass, field
from fcntl import ioctl
from functools import partial
from typing import Final

from api.server.limits import Slot
from engine.runtime.front_end.memory_budget import MemoryBudget

LINGER_S = 1.0
"""How long the service waits for the caller to close the connection after the last response."""

JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to this size, joining head and body costs less than sending them separately. Longer bodies, such as the
page of /metrics, are not copied, since many callers may share the bytes."""

_UNSENT_BYTES = 8 * 1024
"""How many bytes may be unsent in the transport before a sender waits and the memory budget counts them."""

STALLED_S = 15.0
"""The interval at which it is checked that the caller reads."""


_TAKEN_BYTES_MIN: Final = 16 * 1024
"""The bytes that a caller must read between two checks, if that many are unsent."""


CHECKS_SAVED_MAX: Final = 8
"""How many checks a caller may fail if it has read more before, or has just begun.

Operating systems acknowledge what programs have read in steps of up to 128 KiB, which is what the slowest
permitted caller reads between that many checks.
"""


class StallWatch:
    """Aborts a connection whose caller reads less than 16 KiB, or than is left, between two checks.

    Bytes read beyond that count for later checks, at most CHECKS_SAVED_MAX of them.
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
        # More bytes may have been queued meanwhile.
        taken = max(0, before - self._left)
        self._saved = min(CHECKS_SAVED_MAX, self._saved + taken / wanted - 1)
        if self._saved < 0 or not self._left:
            _abort(self._transport)
        else:
            self._timer = self._loop.call_later(STALLED_S, self._look)

    def end(self) -> None:
        """Stop watching."""
        self._timer.cancel()


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Return how many bytes the caller's system has not acknowledged, including those in our own system.

    The transport alone would show a slow caller's progress only once in some MiB.
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


@dataclass(eq=False)
class Sender:
    """Sends bytes, waits for slow callers, and closes once everything is sent."""

    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport
    _memory: MemoryBudget
    caller: Slot = field(init=False)
    _held: bytes = b""
    """The head of a response, held back to be sent with its body in the same iteration of the loop."""
    _flushing: asyncio.Handle | None = None
    _writable: asyncio.Future[None] | None = None
    _is_ended: bool = False
    _stall_watch: StallWatch | None = None
    _lingering: asyncio.TimerHandle | None = None
    has_sent: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more; arriving bytes are then dropped."""
        return self._is_ended or self._transport.is_closing()

    def hold(self, data: bytes) -> None:
        """Send the data together with the next, at the latest in the next iteration of the loop."""
        self._held = data
        self._flushing = self._loop.call_soon(self._flush)

    def send(self, data: bytes) -> None:
        """Send the data; do nothing if the connection is closed, which the application notices by itself."""
        if self._held:
            if len(data) <= JOINED_BYTES_MAX:
                data, self._held = self._held + data, b""
            self._flush()
        if data and not self.is_over:
            self.has_sent = True
            self._transport.write(data)

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        held, self._held = self._held, b""
        self.send(held)

    def bound(self) -> None:
        """Limit the unsent bytes in the transport, which then calls `pause` and `resume`."""
        self._transport.set_write_buffer_limits(_UNSENT_BYTES)

    def pause(self) -> None:
        """Called when too much is unsent."""
        self._writable = self._loop.create_future()

    def resume(self) -> None:
        """Called when most of it is sent, or the caller has gone."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    async def drain(self) -> None:
        """Wait while too much is unsent."""
        if self._writable is not None:
            watch = StallWatch(self._loop, self._transport)
            unread = self._memory.sending(
                self._transport,
                is_public=not self.caller.is_authenticated,
                unread_bytes=partial(unsent_bytes, self._transport),
            )
            try:
                await asyncio.shield(self._writable)
            finally:
                watch.end()
                unread.release()

    def end(self) -> None:
        """Stop sending, and close when the caller has closed, or a little later.

        If the connection were closed while bytes are unread or still arriving, the system would drop the
        part of the last response that the caller has not read yet (RFC 9112, 9.6).
        """
        self._send_eof()
        self._linger()

    def _send_eof(self) -> None:
        self._flush()
        self._is_ended = True
        if self._stall_watch is None:
            self._stall_watch = StallWatch(self._loop, self._transport)
        with suppress(OSError, RuntimeError):
            if self._transport.can_write_eof():
                self._transport.write_eof()

    def _linger(self) -> None:
        self._lingering = self._loop.call_later(LINGER_S, self._close_if_sent)

    def _close_if_sent(self) -> None:
        if self._transport.get_write_buffer_size():
            self._linger()
        else:
            self.close()

    def close(self) -> None:
        """Close once everything is sent."""
        self._send_eof()
        self._transport.close()
        if self._lingering is not None:
            self._lingering.cancel()

    def abort(self) -> None:
        """Close at once, and cancel the timers."""
        _abort(self._transport)
        for timer in (self._lingering, self._flushing):
            if timer is not None:
                timer.cancel()
        if self._stall_watch is not None:
            self._stall_watch.end()


def _abort(transport: asyncio.WriteTransport) -> None:
    # A transport of asyncio fails if it was closing, and has closed itself once all was sent.
    with suppress(AttributeError):
        transport.abort()
