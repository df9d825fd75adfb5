"""Server-sent events over a socket, as a caller reads them."""

import asyncio
import json
from typing import Any

from tests.api.conftest import BOOTSTRAP
from tests.api.wire import Connection, Wire

Event = tuple[int | None, Any]
"""The id of an event, if it has one, and its data."""


async def asked(wire: Wire, path: str, headers: str = "", token: str = BOOTSTRAP) -> Connection:
    connection = await wire.connect()
    lines = f"host: s\r\nauthorization: Bearer {token}\r\naccept: text/event-stream\r\n{headers}\r\n"
    return await connection.send(f"GET {path} HTTP/1.1\r\n{lines}".encode())


async def begun(wire: Wire, path: str, headers: str = "", token: str = BOOTSTRAP) -> Connection:
    connection = await asked(wire, path, headers, token)
    head = await connection.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-type: text/event-stream" in head
    return connection


async def told(connection: Connection, number: int) -> list[Event]:
    """Return the next events of a stream; fewer if it ends before."""
    found: list[Event] = []
    async with asyncio.timeout(10):
        while len(found) < number:
            size = int(await connection.reader.readuntil(b"\r\n"), 16)
            chunk = (await connection.reader.readexactly(size + 2))[:-2]
            if not size:
                break
            for event in chunk.decode().removesuffix("\n\n").split("\n\n"):
                lines = dict(line.split(": ", 1) for line in event.split("\n") if not line.startswith(":"))
                if "data" in lines:
                    found.append((int(lines["id"]) if "id" in lines else None, json.loads(lines["data"])))
    return found
