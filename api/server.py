"""Hypercorn, set up for this application."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import hypercorn.asyncio
import hypercorn.asyncio.run
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.config import Config
from hypercorn.events import Event, RawData, Updated

from api.settings import Settings

_KEEP_ALIVE_REQUESTS_MAX: Final = 100_000

_HEAD: Final = b"HTTP/1.1 "
_JOINED_BYTES_MAX: Final = 64 * 1024
"""Up to here it costs less to copy a body behind its head than to send the two one by one."""

STALLED_S = 15.0
"""Between two looks at a connection that does not take what is sent to it."""


class _StallWatch:
    """Aborts a connection that has taken none of what is being sent to it for STALLED_S seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer = loop.call_later(STALLED_S, self._look, None)

    def _look(self, left_before: int | None) -> None:
        left = self._transport.get_write_buffer_size()
        if left_before is not None and left >= left_before:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(STALLED_S, self._look, left)

    def end(self) -> None:
        """Let the connection be."""
        self._timer.cancel()


class PromptServer(TCPServer):
    """One connection, let go of as soon as its caller has closed it.

    Hypercorn 0.17 and 0.18 keep such a connection, with its socket and tasks, until it has been idle for the
    whole of `keep_alive_timeout`: a caller who opens one for each request then uses up the descriptors. Nor
    does it ever let go of one whose caller takes no replies. And it writes the head of a reply and its body
    one after the other, each in a call to the system that wakes the caller, and then the end, which is empty.
    """

    _head = b""
    """The head of a reply, held back for its body to come with it in the same round of the loop."""
    _flushing: asyncio.Handle | None = None

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        """Send what the protocol has to send; a connection at its end is not idle but done with."""
        if isinstance(event, RawData):
            data = event.data
            if data.startswith(_HEAD) and not self._head:
                self._head = data
                self._flushing = self.loop.call_soon(self._flush)
                return
            if len(data) > _JOINED_BYTES_MAX:
                self._flush()
            data = self._taken() + data
            if not data:
                return
            event = RawData(data)
            watch = _StallWatch(self.loop, self.writer.transport)
            try:
                await super().protocol_send(event)
            finally:
                watch.end()
            return
        self._flush()
        if not (isinstance(event, Updated) and event.idle and self.reader.at_eof()):
            await super().protocol_send(event)

    def _taken(self) -> bytes:
        """Give the head that is held back, for whoever sends it."""
        head, self._head = self._head, b""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        return head

    def _flush(self) -> None:
        """Send the head without its body, which has not come, or is too large to be copied behind it."""
        if head := self._taken():
            # To a caller who has gone nothing can be sent, and whoever reads from the connection finds out.
            with suppress(ConnectionError, RuntimeError):
                self.writer.write(head)


async def serve(app: Any, config: Config, until: Callable[[], Awaitable[None]]) -> None:
    """Serve the application until `until` returns."""
    hypercorn.asyncio.run.TCPServer = PromptServer  # type: ignore[attr-defined]
    await hypercorn.asyncio.serve(app, config, shutdown_trigger=until)


def server_config(settings: Settings) -> Config:
    """Give Hypercorn's configuration; where to listen is for the caller to say."""
    config = Config()
    config.accesslog = "-" if settings.access_log else None
    config.errorlog = "-"
    config.include_server_header = False
    # Cuts off whoever is slow with the headers of a request, too. Longer than clients keep idle connections,
    # most of them 5 s, so that they are the ones who close.
    config.keep_alive_timeout = 15
    # Finite, since over HTTP/2 this is what bounds the streams that a caller may open and drop.
    config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS_MAX
    # Past this the server itself cuts off, without an envelope; up to it the application judges the headers.
    config.h11_max_incomplete_size = 4 * settings.max_header_bytes
    config.h2_max_header_list_size = settings.max_header_bytes
    # It would end handlers that run longer; their time is bounded by the application's own deadline.
    config.read_timeout = None
    config.graceful_timeout = settings.shutdown_grace_s
    config.backlog = 1024
    return config
