"""HTTP/1.1 on one connection, with h11 for all that is said, and a short way for whole replies."""

import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

import h11
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from api.envelope import Headers

REPLY: Final = "reply"
"""Under this name a request's ASGI state holds a way to send a whole reply at once."""

_VERSION_NOT_SUPPORTED: Final = 505


class _Heads:
    """The heads of replies, as they were made for others within the same second."""

    def __init__(self) -> None:
        self._second = 0
        self._made: dict[tuple[int, Headers, int], h11.Response] = {}

    def head(self, status: int, headers: Headers, body_bytes: int) -> h11.Response:
        """Give the head of a reply: these headers, its length and the date."""
        now_s = int(time.time())
        if now_s != self._second:
            self._second = now_s
            self._made.clear()
        which = status, headers, body_bytes
        head = self._made.get(which)
        if head is None:
            date = formatdate(now_s, usegmt=True).encode()
            said = [*headers, (b"content-length", b"%d" % body_bytes), (b"date", date)]
            head = self._made[which] = h11.Response(status_code=status, headers=said)
        return head


_HEADS: Final = _Heads()


class PlainHttp(H11Protocol):
    """HTTP/1.1 and nothing else on a connection.

    Over HTTP/2 without TLS, and over a WebSocket, Hypercorn 0.17 and 0.18 wait without end for callers who
    are silent after the first bytes, or who take no replies. Nobody who calls this service needs either: an
    offer to upgrade is passed over, and who begins with HTTP/2 is refused.
    """

    is_over: Callable[[], bool]
    """Tells whether nothing can be sent any more."""

    async def reply(self, status: int, headers: Headers, body: bytes) -> bool:
        """Send a whole reply to the request under way, or do nothing, where the usual way has more to do.

        The usual way goes through five layers three times, for the head, the body and the end of each reply.
        What this one says to h11, which keeps the state of the connection, is the same.
        """
        stream = self.stream
        if (
            not isinstance(stream, HTTPStream)
            or stream.state is not ASGIHTTPState.REQUEST
            or stream.scope["method"] == "HEAD"
            or self.keep_alive_requests >= self.config.keep_alive_max_requests
            or self.config.accesslog is not None
        ):
            return False
        try:
            head = self.connection.send(_HEADS.head(status, headers, len(body)))
            self.connection.send(h11.Data(data=body))
            self.connection.send(h11.EndOfMessage())
        except h11.LocalProtocolError:
            # What they sent last was no HTTP. The usual way knows what to do.
            return False
        stream.state = ASGIHTTPState.CLOSED
        # With its length said, a body travels as it is, and nothing follows it.
        await self.send(RawData(head))
        await self.send(RawData(body))
        # The connection is ready for the next request once the application has come back.
        return True

    async def _check_protocol(self, event: h11.Request) -> None:
        """Stay with this protocol."""

    async def _create_stream(self, request: h11.Request) -> None:
        if self.is_over():
            # What was sent ahead by a caller who has gone since is nobody's any more.
            await self.send(Closed())
            return
        if request.http_version > b"1.1":
            await self._send_error_response(_VERSION_NOT_SUPPORTED)
            await self.send(Closed())
            return
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
