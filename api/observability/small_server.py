"""A small HTTP server for a thread of its own: one short request for each connection."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from api.schema.envelope import Response, failure
from engine.language.diagnostics import Entry

_REQUEST_S: Final = 5.0
"""How long a request may take to arrive and its response to be read."""
_HEAD_BYTES_MAX: Final = 8 * 1024
_BODY_BYTES_AT_ONCE: Final = 64 * 1024

_BAD_REQUEST: Final = failure(400, [Entry(1006, "this is no request of HTTP/1")])


class SmallServer:
    """Answers the one request of each connection by `respond`, which gets its method and path.

    Beyond `connections_max`, a connection is ended without an answer.
    """

    def __init__(self, respond: Callable[[bytes, bytes], Awaitable[Response]], connections_max: int) -> None:
        self._respond = respond
        self._connections_max = connections_max
        self._connections = 0

    async def serve(self, listener: socket.socket) -> None:
        """Serve on a listening socket until it is cancelled."""
        # The server may close the socket that it is given, and the other one has an owner.
        with listener.dup() as own:
            async with await asyncio.start_server(self._serve, sock=own, limit=_HEAD_BYTES_MAX) as server:
                await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= self._connections_max:
                async with asyncio.timeout(_REQUEST_S):
                    await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The caller has left, is too slow, or sends too much. A time-out is an OSError, too.
            pass
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        match head.partition(b"\r\n")[0].split(b" "):
            case [method, target, b"HTTP/1.0" | b"HTTP/1.1"]:
                response = await self._respond(method, target.partition(b"?")[0])
            case _:
                method, response = b"", _BAD_REQUEST
        writer.write(_head(response))
        if method != b"HEAD":
            writer.write(response.body)
        writer.write_eof()
        # To end a connection before all has arrived would take the response away from the caller.
        while await reader.read(_BODY_BYTES_AT_ONCE):
            pass


def _head(response: Response) -> bytes:
    headers = [
        *response.all_headers(),
        (b"cache-control", b"no-store"),
        (b"date", formatdate(usegmt=True).encode()),
        (b"connection", b"close"),
    ]
    lines = [b"%b: %b\r\n" % header for header in headers]
    phrase = HTTPStatus(response.status).phrase.encode()
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (response.status, phrase, b"".join(lines))
