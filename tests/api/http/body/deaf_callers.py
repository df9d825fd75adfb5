"""Callers over transports without sockets, who read all of their answers or nothing at all."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hypercorn.config import Config

from api.server.connection import Connection
from api.server.exchange import App
from api.server.limits import ConnectionLimit, RequestBounds

_BOUNDS = RequestBounds(64 * 1024, 32 * 1024 * 1024, 30.0)
_PIECE = 64 * 1024


class Callers:
    """All callers of one application, and the most that was unsent to them together."""

    def __init__(self, app: App, limit: ConnectionLimit) -> None:
        self.app = app
        self.limit = limit
        self.unsent = 0
        self.most_unsent = 0
        self._all: list[Caller] = []
        self._tasks: list[asyncio.Task[None]] = []

    def call(self, *requests: bytes, reads: bool) -> "Caller":
        """Send requests on a connection of its own."""
        loop = asyncio.get_running_loop()
        sent = b"".join(requests)
        caller = Caller(self, sent[_PIECE:], reads=reads)
        stream = asyncio.StreamReader()
        stream.feed_data(sent[:_PIECE])
        writer: Any = SimpleNamespace(transport=caller, wait_closed=lambda: asyncio.sleep(0))
        connection = Connection(self.limit, self.app, _BOUNDS, None, loop, Config(), None, {}, stream, writer)
        self._all.append(caller)
        self._tasks.append(asyncio.create_task(connection.run()))
        return caller

    async def hang_up(self) -> None:
        for caller in self._all:
            caller.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Caller(asyncio.Transport):
    """The transport of one caller. What a deaf one does not read stays unsent."""

    def __init__(self, callers: Callers, left: bytes, *, reads: bool) -> None:
        super().__init__()
        self._callers = callers
        self._left = left
        """What it has not sent yet."""
        self._paused = False
        self._reads = reads
        self._protocol: Any = None
        self._high = 64 * 1024
        self._unsent = 0
        self._closed = False
        self.came = bytearray()
        self.first = b""
        """The first bytes that were sent, to a deaf caller too."""

    @property
    def closed(self) -> bool:
        return self._closed

    async def answer(self) -> bytes:
        """Wait for the status line and return the status."""
        async with asyncio.timeout(30):
            while not self.first:  # noqa: ASYNC110 -- there is no event for it
                await asyncio.sleep(0.001)
        return self.first[9:12]

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._send_soon()

    def _send_soon(self) -> None:
        if self._left and not self._paused and not self._closed:
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        if self._left and not self._paused and not self._closed:
            buffer = self._protocol.get_buffer(-1)
            count = min(len(buffer), len(self._left))
            buffer[:count], self._left = self._left[:count], self._left[count:]
            self._protocol.buffer_updated(count)
            self._send_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.first = self.first or bytes(data[:200])
        if self._reads:
            self.came += data
            return
        self._unsent += len(data)
        self._callers.unsent += len(data)
        self._callers.most_unsent = max(self._callers.most_unsent, self._callers.unsent)
        if self._unsent > self._high:
            self._protocol.pause_writing()

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._send_soon()

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        if not self._unsent:
            self.abort()

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._callers.unsent -= self._unsent
            self._unsent = 0
            if self._protocol is not None:
                asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
