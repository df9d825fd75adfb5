"""Requests over real sockets, byte by byte, against the application under Hypercorn."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from api.server.hypercorn_config import request_bounds, serve, server_config
from api.server.limits import ConnectionLimit
from api.settings import Settings
from tests.api.scripted import DETECTOR

EVALUATE = f"/api/detectors/{DETECTOR}/evaluate"
EVENT = json.dumps({"event": {"fields": {}, "timestamp_ms": 0}}).encode()

END_WITHIN_S = 8.0
"""Below the server's time-outs for slow callers, so that none of them is what ends a connection."""


@dataclass
class Served:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def codes(self) -> list[int]:
        return [entry["code"] for entry in self.envelope["errors"]]


@dataclass
class Connection:
    """One connection. `receive` reads one reply; `at_end` tells whether the server has closed."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    opened: list["Connection"] = field(default_factory=list)

    async def send(self, data: bytes) -> Self:
        self.writer.write(data)
        await self.writer.drain()
        return self

    async def receive(self, method: str = "POST") -> Served:
        async with asyncio.timeout(60):
            head = await self.reader.readuntil(b"\r\n\r\n")
            start, *lines = head.decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
            length = 0 if method == "HEAD" else int(headers.get("content-length", 0))
            return Served(int(start.split()[1]), headers, await self.reader.readexactly(length))

    async def at_end(self) -> bool:
        async with asyncio.timeout(END_WITHIN_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Wire:
    """A server, and connections to it that are closed at the end."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.tasks_at_rest = 0
        self.stop: Callable[[], None]
        """Has the server end."""
        self._opened: list[Connection] = []

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self._opened.append(connection)
        return connection

    async def once(self, data: bytes, method: str = "POST") -> Served:
        """Send on a connection of its own."""
        return await (await (await self.connect()).send(data)).receive(method)

    async def hang_up(self) -> None:
        for connection in self._opened:
            await connection.close()

    async def comes_to_rest(self) -> bool:
        """Return whether, once its callers have gone, no task is left that was not there before them."""
        await self.hang_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WITHIN_S):
                while len(asyncio.all_tasks()) > self.tasks_at_rest:  # noqa: ASYNC110 -- there is no event for it
                    await asyncio.sleep(0.02)
                return True
        return False


@asynccontextmanager
async def served(
    app: Any, settings: Settings, limit: ConnectionLimit | None = None, *, grace_s: float = 0.2
) -> AsyncIterator[Wire]:
    """Serve an application on a free port. At the end it lets streams end, and gives them a moment."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = server_config(settings)
    config.errorlog = None
    config.graceful_timeout = grace_s
    wire = Wire(listener.getsockname()[1])
    config.bind = [f"fd://{listener.detach()}"]
    stop = asyncio.Event()
    wire.stop = stop.set

    async def until_stopped() -> None:
        await stop.wait()
        app.end_streams()

    serving = asyncio.ensure_future(serve(app, config, until_stopped, limit, bounds=request_bounds(settings)))
    try:
        # All that the server needs for itself is running once it has answered.
        assert (await wire.once(request("GET", "/healthz"))).status == 200
        await wire.hang_up()
        while any("_server_callback" in repr(task.get_coro()) for task in asyncio.all_tasks()):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        wire.tasks_at_rest = len(asyncio.all_tasks())
        yield wire
    finally:
        await wire.hang_up()
        stop.set()
        await serving


def request(
    method: str = "POST",
    path: str = "/api/detectors",
    body: bytes = b"",
    *,
    token: str | None = None,
    headers: tuple[str, ...] = (),
    length: bool = True,
) -> bytes:
    """Return a request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if method == "POST" and not any(line.lower().startswith("content-type") for line in headers):
        lines.append("Content-Type: application/json")
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body and length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(*chunks: bytes) -> bytes:
    """Return a body in chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
