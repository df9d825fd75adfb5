"""Body discard: reads and drops the rest of a refused body, so that the caller can read the response."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from api.schema.envelope import Response
from api.server.asgi import Receive, Send

DISCARD_S: Final = 10.0
"""How long the rest of a body may take to arrive before the connection is closed instead."""

LINGER_S: Final = 1.0
"""The same after the request's deadline, and while the service shuts down."""


@dataclass(eq=False)
class BodyDiscard:
    """Ends responses to requests whose bodies may still be arriving.

    The server queues a few chunks of a body and then stops reading, and the end of the connection has to go
    through the same queue. If nobody read the body, a caller who sends without reading would hang, and so
    would the server. So the body is read while the response is sent, and until the body or the connection
    ends. Past `bytes_max` bytes or DISCARD_S seconds the connection is closed instead.
    """

    bytes_max: int
    _ending: bool = False
    _open: set[asyncio.Timeout] = field(default_factory=set)

    async def refuse(self, response: Response, receive: Receive, send: Send, left_s: float) -> None:
        """Send a response and discard the body of its request, which has `left_s` seconds left."""
        async with self._discarding(receive) as body:
            start = {"status": response.status, "headers": response.all_headers()}
            await send({"type": "http.response.start", **start})
            for piece in response.pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await self._until_over(body, left_s)
            await send({"type": "http.response.body", "body": b""})

    async def finish(self, receive: Receive, send: Send, left_s: float) -> None:
        """End a response whose body has been sent, and discard the body of its request, too."""
        async with self._discarding(receive) as body:
            await self._until_over(body, left_s)
            await send({"type": "http.response.body", "body": b""})

    def end(self) -> None:
        """Shut down: give the bodies that are being discarded, now and later, only LINGER_S."""
        self._ending = True
        now_s = asyncio.get_running_loop().time()
        for timeout in self._open:
            timeout.reschedule(now_s + LINGER_S)

    async def _until_over(self, body: "_Discarded", left_s: float) -> None:
        """Wait until the body has arrived, is past the limit, or has taken too long."""
        within_s = LINGER_S if self._ending else min(DISCARD_S, max(LINGER_S, left_s))
        try:
            async with asyncio.timeout(within_s) as timeout:
                self._open.add(timeout)
                try:
                    await body.over.wait()
                finally:
                    self._open.discard(timeout)
        except TimeoutError:
            pass

    @asynccontextmanager
    async def _discarding(self, receive: Receive) -> AsyncIterator["_Discarded"]:
        body = _Discarded(receive, self.bytes_max)
        reading = asyncio.ensure_future(body.read())
        try:
            yield body
            if not body.ended:
                # The response is complete, so the connection closes. The server is about to report that.
                await asyncio.wait([reading], timeout=LINGER_S)
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@dataclass(eq=False)
class _Discarded:
    """A body that is read and dropped."""

    receive: Receive
    bytes_max: int
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the end of the body, and past the limit."""
    ended: bool = False
    """Whether the body or the connection has ended."""

    async def read(self) -> None:
        """Read to the end of the connection, past the limit too."""
        size = 0
        while True:
            message = await self.receive()
            size += len(message.get("body", b""))
            self.ended = self.ended or not message.get("more_body", False)
            if self.ended or size > self.bytes_max:
                self.over.set()
            if message["type"] == "http.disconnect":
                return
