"""The sending half of a connection, to its end."""

import asyncio
from contextlib import suppress

from api.server.connection_timeouts import StallWatch
from api.server.http1.exchange import JOINED_BYTES_MAX

LINGER_S = 1.0
"""From when the last response is with the system until the connection is closed where the caller does not."""

_UNSENT_BYTES = 64 * 1024
"""How much is left to the transport before a sender waits for it; it has a bound of its own."""


class Sender:
    """Sends bytes, waits for callers who take them slowly, and closes once everything is sent."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._held = b""
        """The head of a response, held back for its body to come with it in the same round of the loop."""
        self._flushing: asyncio.Handle | None = None
        self._writable: asyncio.Future[None] | None = None
        self._is_ended = False
        self._stall_watch: StallWatch | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self.has_sent = False

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more; what comes is dropped."""
        return self._is_ended or self._transport.is_closing()

    def hold(self, data: bytes) -> None:
        """Send the data with what is sent next, at the latest in the next round of the loop."""
        self._held = data
        self._flushing = self._loop.call_soon(self._flush)

    def send(self, data: bytes) -> None:
        """Send the data. Where nobody is there any more, do nothing: the application is told as it reads."""
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
        """Bound what is left to the transport, which then tells when it is too much."""
        self._transport.set_write_buffer_limits(_UNSENT_BYTES)

    def pause(self) -> None:
        """Take note that the caller has too much yet to take."""
        self._writable = self._loop.create_future()

    def resume(self) -> None:
        """Take note that the caller has taken most of it, or is gone."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    async def drain(self) -> None:
        """Wait while the caller has too much yet to take."""
        if self._writable is not None:
            watch = StallWatch(self._loop, self._transport)
            try:
                await asyncio.shield(self._writable)
            finally:
                watch.end()

    def end(self) -> None:
        """Send nothing more, and close when the caller has, or a little later.

        To close where something is unread, or still comes, has the system drop what the caller has yet to
        take of the last response (RFC 9112, 9.6).
        """
        self._send_eof()
        self._linger()

    def _send_eof(self) -> None:
        self._flush()
        self._is_ended = True
        if self._stall_watch is None:
            self._stall_watch = StallWatch(self._loop, self._transport)
        with suppress(OSError, RuntimeError):
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
        """Close at once, and let go of the timers."""
        self._transport.abort()
        for timer in (self._lingering, self._flushing):
            if timer is not None:
                timer.cancel()
        if self._stall_watch is not None:
            self._stall_watch.end()
