"""HTTP/1.1 on one connection, with h11 for all that is said, and a short way for plain evaluations."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import h11
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from api.schema.envelope import Headers
from api.server.fast_heads import PlainHead, read_plain
from api.server.request_ids import HEADER, STATE, request_id
from api.server.response_headers import HEADS, with_request_id
from api.server.server_errors import server_error

REPLY: Final = "reply"
"""Under this name a request's ASGI state holds a way to send a whole reply at once."""

JOINED_BYTES_MAX: Final = 64 * 1024
"""Up to here it costs less to copy a body behind its head than to send the two one by one."""

_VERSION_NOT_SUPPORTED: Final = 505
_CONNECTION: Final = b"connection"
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)++")
_SHOWN_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class _Unseen:
    """A request: its head, and how much of its body has come and has yet to come."""

    head: bytes
    body_came: int
    body_left: int


def past_empty_lines(data: bytes) -> bytes:
    """Give the data without the empty lines with which it begins."""
    lines = _EMPTY_LINES.match(data)
    return data[lines.end() :] if lines else data


class LenientConnection(h11.Connection):
    """h11's, which ignores empty lines between requests, and lets what follows a last request be.

    A caller who said `Connection: close`, or speaks HTTP/1.0, may still send a line end too many, or another
    request; h11 would refuse it, and with it the reply to the one before (RFC 9112, 9.6: that is sent).
    """

    def receive_data(self, data: bytes) -> None:
        """Take what has come."""
        if not (data and self.their_state is h11.MUST_CLOSE):
            super().receive_data(data)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Give what was said next; empty lines before a request are ignored (RFC 9112, 2.2)."""
        if self.their_state is h11.MUST_CLOSE and self.trailing_data[0]:
            return h11.NEED_DATA
        if self.their_state is h11.IDLE and (data := self.trailing_data[0]).startswith(b"\r"):
            rest = past_empty_lines(data)
            if len(rest) < len(data):
                self._receive_buffer.maybe_extract_at_most(len(data) - len(rest))
            if rest == b"\r":
                # The other half of an empty line may follow.
                return h11.NEED_DATA
        return super().next_event()


class _Stream(HTTPStream):
    """Hypercorn's, which answers in the envelope where the application does not answer."""

    async def _send_error_response(self, status_code: int) -> None:
        reply = server_error(status_code)
        response = Response(stream_id=self.stream_id, headers=reply.all_headers(), status_code=reply.status)
        await self.send(response)
        if self.scope["method"] != "HEAD":
            await self.send(Body(stream_id=self.stream_id, data=reply.body))
        await self.send(EndBody(stream_id=self.stream_id))
        self.state = ASGIHTTPState.CLOSED


class PlainHttp(H11Protocol):
    """HTTP/1.1 and nothing else on a connection.

    Over HTTP/2 without TLS, and over a WebSocket, Hypercorn 0.17 and 0.18 wait without end for callers who
    are silent after the first bytes, or who take no replies. Nobody who calls this service needs either: an
    offer to upgrade is passed over, and who begins with HTTP/2 is refused.

    A plain request that comes while nothing else is under way is not shown to h11, which takes longer to read
    and to answer it than all else that the front end does. As soon as anything happens that h11 should see,
    bytes past the body, or a reply that comes in parts or ahead of the body's end, it is shown the request
    after all, and goes on from there. So whatever is under way is in one of three states:

    =============  ===================================================================
    `_unseen`      a plain request comes, or has come whole, and is not answered
    `_answered`    it was answered in one go; the application has yet to come back
    neither        there is nothing, or h11 has it
    =============  ===================================================================
    """

    is_over: Callable[[], bool]
    """Tells whether nothing can be sent any more."""

    is_last: Callable[[], bool]
    """Tells whether the reply is to be the last on the connection, and to say so."""

    send_at_once: Callable[[bytes], Awaitable[None]]
    """Sends bytes, with what was held back for others to come with it."""

    connection: h11.Connection

    _unseen: _Unseen | None = None
    """The request under way, while h11 has not seen it."""
    _answered: bool = False
    """Whether it was answered, and h11 has nothing to see any more."""

    async def initiate(self) -> None:
        """Begin, before anything is handled."""
        self.connection = LenientConnection(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )

    async def handle(self, event: Event) -> None:
        """Take what has come."""
        if isinstance(event, RawData):
            data = await self._take_plain(event.data)
            if data:
                await super().handle(RawData(data))
        else:
            await super().handle(event)

    async def reply(self, status: int, headers: Headers, body: bytes) -> bool:
        """Send a whole reply to the request under way, which was read to its end.

        False, with nothing sent to the caller, where the usual way has more to do.

        The usual way goes through five layers three times, for the head, the body and the end of each reply.
        """
        stream = self.stream
        if (
            not isinstance(stream, HTTPStream)
            or stream.state is not ASGIHTTPState.REQUEST
            or stream.scope["method"] == "HEAD"
            or self.keep_alive_requests >= self.config.keep_alive_max_requests
        ):
            return False
        unseen = self._unseen
        if unseen is not None and unseen.body_left:
            # The rest of the body would be taken for the next request. h11 knows where it ends.
            return False
        if self.is_last():
            headers = _closing(headers)
        if unseen is not None and any(name == _CONNECTION for name, _ in headers):
            self._show()
        if self._unseen is not None:
            head = HEADS.bytes_of(status, headers, len(body))
            self._unseen = None
            self._answered = True
        else:
            try:
                # h11 keeps the state of the connection.
                head = self.connection.send(HEADS.of(status, headers, len(body))) or b""
                self.connection.send(h11.Data(data=body))
                self.connection.send(h11.EndOfMessage())
            except h11.LocalProtocolError:
                # What they sent last was no HTTP. The usual way knows what to do.
                return False
        stream.state = ASGIHTTPState.CLOSED
        head = with_request_id(head, self.connection_state[STATE])
        # With its length said, a body travels as it is, and nothing follows it.
        for piece in (head + body,) if len(body) <= JOINED_BYTES_MAX else (head, body):
            await self.send_at_once(piece)
        # The connection is ready for the next request once the application has come back.
        return True

    async def stream_send(self, event: StreamEvent) -> None:
        """Do what the application asks for, in parts."""
        if self._unseen is not None:
            self._show()
        if isinstance(event, Response):
            headers = (*event.headers, (HEADER, self.connection_state[STATE]))
            event = replace(event, headers=list(_closing(headers) if self.is_last() else headers))
        await super().stream_send(event)

    # -- plain requests --------------------------------------------------------------------------------------

    async def _take_plain(self, data: bytes) -> bytes:
        """Take plain requests of what has come, and give what is left for h11."""
        while data:
            if self._answered:
                # The application has yet to come back from the request before.
                await self.can_read.clear()
                await self.can_read.wait()
            unseen = self._unseen
            if unseen is None:
                plain = self._plain(data)
                if plain is None:
                    rest = self._past_empty_lines(data)
                    if len(rest) == len(data):
                        break
                    data = rest
                    continue
                if await self._is_ended():
                    return b""
                data = data[len(plain.as_it_came) :]
                await self._begin_plain(plain)
            elif unseen.body_left:
                body, data = data[: unseen.body_left], data[unseen.body_left :]
                await self._take_body(unseen, body)
            elif rest := past_empty_lines(data):
                data = rest
                self._show()
                break
            else:
                data = b""
        return data

    @property
    def is_amid(self) -> bool:
        """Whether h11 has begun with something that goes on with the next bytes, whatever they look like."""
        connection = self.connection
        return connection.their_state is not h11.IDLE or bool(connection.trailing_data[0])

    def _plain(self, data: bytes) -> PlainHead | None:
        """Give the head that has come, where it is plain and h11 need not see it; else None."""
        return None if self.is_amid else read_plain(data)

    def _past_empty_lines(self, data: bytes) -> bytes:
        """Give what comes after the empty lines, which are ignored between requests (RFC 9112, 2.2)."""
        return data if self.is_amid else past_empty_lines(data)

    async def _begin_plain(self, plain: PlainHead) -> None:
        unseen = self._unseen = _Unseen(plain.as_it_came, 0, plain.body_bytes)
        await self.send(Updated(idle=False))
        await self._open_stream(b"POST", plain.target, plain.headers)
        if not plain.body_bytes:
            await self._take_body(unseen, b"")

    async def _take_body(self, unseen: _Unseen, body: bytes) -> None:
        unseen.body_came += len(body)
        unseen.body_left -= len(body)
        assert isinstance(self.stream, HTTPStream), "it goes on as long as its request is under way"
        more = unseen.body_left > 0
        await self.stream.app_put({"type": "http.request", "body": body, "more_body": more})

    def _show(self) -> None:
        """Have h11 see as much of the request under way as the application has."""
        assert self._unseen is not None, "there is one that it has not seen"
        unseen, self._unseen = self._unseen, None
        self.connection.receive_data(unseen.head)
        self.connection.next_event()
        # What the body says is nothing to h11, and was not kept.
        while unseen.body_came:
            piece = bytes(min(unseen.body_came, _SHOWN_BYTES))
            unseen.body_came -= len(piece)
            self.connection.receive_data(piece)
            self.connection.next_event()
        if not unseen.body_left:
            self.connection.next_event()

    async def _maybe_recycle(self) -> None:
        answered, self._answered = self._answered, False
        connection = self.connection
        if answered or (connection.our_state is h11.DONE and connection.their_state is h11.DONE):
            await self._close_stream()
            if not answered:
                connection.start_next_cycle()
            # Also while the service ends: the reply did not say that it was the last.
            await self.can_read.set()
            await self.send(Updated(idle=True))
            return
        if self.context.terminated.is_set():
            # What was sent ahead is read no more. Hypercorn would wait without end for leave to read it.
            await self.initiate()
        await super()._maybe_recycle()

    async def _is_ended(self) -> bool:
        """Tell, and see to the end of the connection, where what was sent ahead is nobody's any more."""
        if self.is_over():
            await self.send(Closed())
            return True
        return False

    # -- all others ------------------------------------------------------------------------------------------

    async def _check_protocol(self, event: h11.Request) -> None:
        """Stay with this protocol."""

    async def _send_error_response(self, status_code: int) -> None:
        """Answer what is no request, in the envelope."""
        reply = server_error(status_code)
        headers = [*reply.all_headers(), *self.config.response_headers("h11")]
        await self._send_h11_event(h11.Response(status_code=reply.status, headers=headers))
        if not (isinstance(self.stream, HTTPStream) and self.stream.scope["method"] == "HEAD"):
            await self._send_h11_event(h11.Data(data=reply.body))
        await self._send_h11_event(h11.EndOfMessage())

    async def _create_stream(self, request: h11.Request) -> None:
        if await self._is_ended():
            return
        if request.http_version > b"1.1":
            await self._send_error_response(_VERSION_NOT_SUPPORTED)
            await self.send(Closed())
            return
        await self._open_stream(
            request.method.upper(), request.target, list(request.headers), request.http_version
        )

    async def _open_stream(
        self, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], version: bytes = b"1.1"
    ) -> None:
        """Hand a request to the application."""
        # The stream gives it to the application, with a copy of the state.
        self.connection_state[STATE] = request_id(headers)
        self.stream = _Stream(
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
                headers=headers,
                http_version=version.decode(),
                method=method.decode("ascii"),
                raw_path=target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1


def _closing(headers: Headers) -> Headers:
    """Give the headers of a reply that is the last on its connection."""
    return (*(header for header in headers if header[0] != _CONNECTION), (_CONNECTION, b"close"))
