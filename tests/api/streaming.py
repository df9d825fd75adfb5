"""A caller of streams over a real socket, who can be slow, silent or gone."""

import asyncio
import json
from typing import Any

from tests.api.scripted import DETECTOR, TOKEN
from tests.api.wire import Connection, Served, Wire, request

NDJSON = "Content-Type: application/x-ndjson"


def line(timestamp_ms: float = 0, context: object = None, **fields: object) -> bytes:
    """Return an evaluate body as a line."""
    document: dict[str, object] = {"event": {"fields": fields, "timestamp_ms": timestamp_ms}}
    if context is not None:
        document["context"] = context
    return json.dumps(document).encode() + b"\n"


class Streaming:
    """One stream: a request in chunks, and the lines of its reply as they come."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._came = b""

    async def send(self, body: bytes) -> None:
        await self.connection.send(b"%x\r\n%s\r\n" % (len(body), body))

    async def end(self) -> None:
        await self.connection.send(b"0\r\n\r\n")

    async def begun(self) -> Served:
        """Read the head of the reply."""
        return await self.connection.receive()

    async def next(self) -> Any:
        """Return the next line of the reply; None where there is no more."""
        async with asyncio.timeout(20):
            while b"\n" not in self._came:
                size = int(await self.connection.reader.readuntil(b"\r\n"), 16)
                self._came += (await self.connection.reader.readexactly(size + 2))[:-2]
                if size == 0:
                    return None
        first, _, self._came = self._came.partition(b"\n")
        return json.loads(first)

    async def rest(self) -> list[Any]:
        """Return all lines that are still to come."""
        found = []
        while (one := await self.next()) is not None:
            found.append(one)
        return found


async def stream(wire: Wire, detector: str = DETECTOR, token: str = TOKEN) -> Streaming:
    """Begin a stream on a connection of its own."""
    headers = ("Transfer-Encoding: chunked", NDJSON)
    connection = await wire.connect()
    path = f"/api/detectors/{detector}/evaluate/batch"
    await connection.send(request(path=path, token=token, headers=headers))
    return Streaming(connection)
