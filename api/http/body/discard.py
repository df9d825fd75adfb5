"""The end of a reply whose request is still being sent: read past, so that the caller can read the reply."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from api.http.request.asgi import Receive, Send
from api.schema.envelope import Response

DRAIN_S: Final = 10.0
"""How long what is left of a body may take to arrive before the connection is closed instead."""

LINGER_S: Final = 1.0
"""How long it may where there is no time left: after the request's deadline, and while the service ends."""


class BodyDiscard:
    """Ends replies to requests whose bodies may still be coming.

    The server holds a few chunks of a body and then stops reading, and it tells us of the connection's end
    in the same place, for which there must be room: whoever sends without reading can hang there for ever,
    and so can the server once nobody reads. So what comes is read while anything is sent, and until the end
    of the body or of the connection was heard. The reply is on its way before the body is drained. Past
    `bytes_max` bytes or some seconds the connection is closed instead.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._ending = False
        self._open: set[asyncio.Timeout] = set()

    async def refuse(self, reply: Response, receive: Receive, send: Send, left_s: float) -> None:
        """Send a reply to a request for which there are so many seconds left, and read past its body."""
        async with self._reading_past(receive) as body:
            start = {"status": reply.status, "headers": reply.all_headers()}
            await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": reply.body, "more_body": True})
            await self._until_over(body, left_s)
            await send({"type": "http.response.body", "body": b""})

    async def finish(self, receive: Receive, send: Send, left_s: float) -> None:
        """End a reply of which all else has been sent, to a request with so many seconds left."""
        async with self._reading_past(receive) as body:
            await self._until_over(body, left_s)
            await send({"type": "http.response.body", "body": b""})

    def end(self) -> None:
        """Let no body take long to arrive any more."""
        self._ending = True
        now_s = asyncio.get_running_loop().time()
        for timeout in self._open:
            timeout.reschedule(now_s + LINGER_S)

    async def _until_over(self, body: "_Unwanted", left_s: float) -> None:
        """Wait until nothing more of the body is read for the caller's sake."""
        within_s = LINGER_S if self._ending else min(DRAIN_S, max(LINGER_S, left_s))
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
    async def _reading_past(self, receive: Receive) -> AsyncIterator["_Unwanted"]:
        body = _Unwanted(receive, self._bytes_max)
        reading = asyncio.ensure_future(body.read())
        try:
            yield body
            if not body.ended:
                # The reply is at its end, and so is the connection: the server is about to tell.
                await asyncio.wait([reading], timeout=LINGER_S)
        finally:
            reading.cancel()
            await asyncio.wait([reading])


class _Unwanted:
    """A body that is read past."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self.over = asyncio.Event()
        """Set at the end of the body, and past the bound."""
        self.ended = False
        """Whether there is nothing more of it, since it or the connection has come to its end."""
        self._receive = receive
        self._bytes_max = bytes_max

    async def read(self) -> None:
        """Read to the end of the connection, whatever the bound."""
        size = 0
        while True:
            message = await self._receive()
            size += len(message.get("body", b""))
            self.ended = self.ended or not message.get("more_body", False)
            if self.ended or size > self._bytes_max:
                self.over.set()
            if message["type"] == "http.disconnect":
                return
