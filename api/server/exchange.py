"""One request and its response, as ASGI sees them."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Final, Protocol

from api.schema.envelope import Headers, Response, failure
from api.server.requests import (
    FIELDS_MAX,
    FIELDS_STATE,
    REQUEST_ID,
    REQUEST_ID_STATE,
    TARGET_BYTES_MAX,
    RequestHead,
    request_id,
)
from api.server.sender import JOINED_BYTES_MAX, Sender
from engine.language.diagnostics import Entry

_log = logging.getLogger("rule_detector.api")

Scope = Mapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

CLOSE: Final = (b"connection", b"close")

_MEANINGS: Final = {
    400: "the request is not HTTP/1.1 by its grammar",
    414: f"the target of the request, its path and query, is longer than {TARGET_BYTES_MAX} bytes",
    431: "the head of the request, or a line of its body's framing, is too large; "
    f"a head has at most {FIELDS_MAX} fields",
    501: "Transfer-Encoding: only `chunked` is supported",
    505: "only HTTP/1.1 is supported",
}

RESPOND: Final = "respond"
"""The key of `Exchange.respond` in a request's ASGI state."""

_NO_BODY: Final = frozenset({204, 304})


class CallerGone(BaseException):
    """The caller closed the connection and no longer waits for a response.

    It is no Exception, so that no error handler answers it.
    """


async def until_gone(receive: Receive) -> None:
    """Return when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def part_of(message: Message) -> bytes:
    """Return the part of a body in a message. Raises CallerGone."""
    if message["type"] == "http.disconnect":
        raise CallerGone
    part: bytes = message.get("body", b"")
    return part


class ResponseHeads:
    """Makes the heads of responses: status, headers, length of the body, and date."""

    def __init__(self) -> None:
        self._second = 0
        self._date = b""
        self._made: dict[tuple[int, Headers, int], bytes] = {}

    def date(self) -> bytes:
        """Return the time for the header `Date`."""
        now_s = int(time.time())
        if now_s != self._second:
            self._second = now_s
            self._date = formatdate(now_s, usegmt=True).encode()
            self._made.clear()
        return self._date

    def whole(self, status: int, headers: Headers, body_bytes: int, request_id: bytes) -> bytes:
        """Return the head of a response with a body of `body_bytes`."""
        date = self.date()
        which = status, headers, body_bytes
        made = self._made.get(which)
        if made is None:
            length = (b"content-length", b"%d" % body_bytes)
            made = self._made[which] = _lines(status, [*headers, length, (b"date", date)])
        return b"%b%b: %b\r\n\r\n" % (made, REQUEST_ID, request_id)

    def started(self, status: int, headers: Iterable[tuple[bytes, bytes]], request_id: bytes) -> bytes:
        """Return the head of a response whose headers already say where its body ends."""
        return _lines(status, [*headers, (b"date", self.date()), (REQUEST_ID, request_id)]) + b"\r\n"


def _lines(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    if not lines.count(b"\r") == lines.count(b"\n") == len(headers):
        # Callers would read the rest as another header or response, made by an attacker.
        raise ValueError("a header of the response has a line break")
    return b"HTTP/1.1 %d \r\n%b" % (status, lines)


HEADS: Final = ResponseHeads()


def server_error(status: int) -> Response:
    """Return the response to an unreadable request, after which the connection ends.

    The code is 1006 and the status 400, even where HTTP has 414, 431 or 501. Only another version of HTTP
    keeps its status, 505.
    """
    if status not in _MEANINGS:
        reference = secrets.token_hex(6)
        _log.error("internal error %s: the application ended without an answer", reference)
        entry = Entry(1500, f"an internal error; its reference is {reference}")
        return failure(500, [entry]).closing()
    return failure(505 if status == 505 else 400, [Entry(1006, _MEANINGS[status])]).closing()  # noqa: PLR2004


class ExchangeConnection(Protocol):
    """The connection, as an exchange uses it."""

    @property
    def is_last(self) -> bool:
        """Whether the server closes the connection after this response; it sends `Connection: close`."""

    def body_taken(self) -> None:
        """Called when the application has received all of the body that had arrived."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request whose body may still be arriving, and its response."""

    head: RequestHead
    _request_id: bytes
    _connection: ExchangeConnection
    _sender: Sender
    body_is_whole: bool = field(init=False)
    closes: bool = field(init=False)
    """Whether the connection ends after the response."""
    is_started: bool = False
    """Whether the response has been started."""
    is_complete: bool = False
    """Whether the response is complete. Then further parts of the request's body are dropped."""
    dropped_bytes: int = 0
    _body: bytes | bytearray = b""
    """The part of the body that has arrived and waits for the application."""
    _end_received: bool = False
    _disconnected: bool = False
    _changed: asyncio.Event | None = None
    _chunked: bool = False
    _body_left: int | None = None
    """How many bytes of the response's body are left to send, if its length was announced."""

    def __post_init__(self) -> None:
        self.body_is_whole = self.head.body_bytes == 0
        self.closes = not self.head.keeps_alive

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of the body have arrived and wait for the application."""
        return len(self._body)

    def feed(self, body: bytes, *, is_whole: bool) -> None:
        """Take a piece of the body."""
        if self.is_complete:
            self.dropped_bytes += len(body)
        elif self._body:
            self._body = bytearray(self._body) if isinstance(self._body, bytes) else self._body
            self._body += body
        else:
            self._body = body
        self.body_is_whole = is_whole
        self._tell()

    def disconnect(self) -> None:
        """Called when the caller no longer waits for the response."""
        self._disconnected = True
        self._tell()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def run(self, app: App, scope: Mapping[str, Any]) -> None:
        """Run the application. If it sends nothing, the server answers; a partial answer stays partial."""
        try:
            await app(scope, self.receive, self.send)
        except Exception:
            # The caller must get an answer after any exception.
            logging.getLogger(__name__).exception("the application failed")
        if not (self.is_started or self._disconnected):
            response = server_error(500)
            await self.respond(response.status, response.own_headers(), response.body)

    def scope(self, connection: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the ASGI scope of the request, given the scope and state of its connection.

        Its path is as the caller sent it, because the application itself decodes the escapes.
        """
        head = self.head
        path, _, query = head.target.partition(b"?")
        return {
            **connection,
            "http_version": head.version.decode("ascii"),
            "method": head.method.decode("ascii"),
            "path": path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "headers": head.fields.headers,
            "state": {
                **state,
                FIELDS_STATE: head.fields,
                REQUEST_ID_STATE: self._request_id,
                RESPOND: self.respond,
            },
        }

    async def receive(self) -> Message:
        """Return the next part of the request, or its end; part of ASGI."""
        while not (self._body or (self.body_is_whole and not self._end_received)):
            if self.is_complete or self._disconnected:
                return {"type": "http.disconnect"}
            if self._changed is None:
                self._changed = asyncio.Event()
            self._changed.clear()
            await self._changed.wait()
        body, self._body = self._body, b""
        # The end of a chunked body is a separate message, and can be received after the body is refused.
        self._end_received = self.body_is_whole and not (body and self.head.body_bytes is None)
        self._connection.body_taken()
        return {"type": "http.request", "body": bytes(body), "more_body": not self._end_received}

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a part of the response; part of ASGI."""
        match message["type"]:
            case "http.response.start" if not self.is_started:
                self._start(message["status"], message.get("headers", ()))
            case "http.response.body" if self.is_started and not self.is_complete:
                await self._send_body(message.get("body", b""), is_end=not message.get("more_body", False))
            case unexpected:
                raise RuntimeError(f"the application sent {unexpected} out of order")

    async def respond(self, status: int, headers: Headers, *body: bytes) -> None:
        """Send a whole response at once, its body in pieces; length and date are added to the headers."""
        assert not self.is_started, "a request has one response"
        if self.closes or self._connection.is_last or CLOSE in headers:
            headers = (*(header for header in headers if header[0] != CLOSE[0]), CLOSE)
            self.closes = True
        body_bytes = sum(map(len, body))
        head = HEADS.whole(status, headers, body_bytes, self._request_id)
        self.is_started = True
        self._complete()
        pieces = (head,) if self.head.method == b"HEAD" else (head, *body)
        for piece in (b"".join(pieces),) if body_bytes <= JOINED_BYTES_MAX else pieces:
            self._sender.send(piece)
        await self._sender.drain()

    def _start(self, status: int, headers: Headers) -> None:
        sent = [(name.lower(), value) for name, value in headers if name.lower() != CLOSE[0]]
        self.closes = self.closes or self._connection.is_last or len(sent) < len(headers)
        has_body = self.head.method != b"HEAD" and status not in _NO_BODY
        length = next((value for name, value in sent if name == b"content-length"), None)
        if length is not None:
            self._body_left = int(length) if has_body else 0
        elif not has_body:
            self._body_left = 0
        elif self.head.version == b"1.1":
            sent.append((b"transfer-encoding", b"chunked"))
            self._chunked = True
        if self.closes:
            sent.append(CLOSE)
        head = HEADS.started(status, sent, self._request_id)
        self.is_started = True
        self._sender.hold(head)

    async def _send_body(self, body: bytes, *, is_end: bool) -> None:
        if self.head.method == b"HEAD":
            body = b""
        if self._body_left is not None:
            self._body_left -= len(body)
            assert self._body_left >= 0, "a body is as long as its head says"
        if is_end:
            # A body that is shorter than its head says can only be ended by closing the connection.
            self.closes = self.closes or bool(self._body_left)
            self._complete()
        if self._chunked:
            self._send_chunk(body)
            if is_end:
                self._sender.send(b"0\r\n\r\n")
        elif body or is_end:
            self._sender.send(body)
        if body or is_end:
            await self._sender.drain()

    def _send_chunk(self, body: bytes) -> None:
        if len(body) > JOINED_BYTES_MAX:
            # A long body is not copied.
            self._sender.send(b"%x\r\n" % len(body))
            self._sender.send(body)
            self._sender.send(b"\r\n")
        elif body:
            self._sender.send(b"%x\r\n%b\r\n" % (len(body), body))

    def _complete(self) -> None:
        self.is_complete = True
        self._body = b""
        self._tell()


def refusal(status: int, exchange: Exchange | None) -> bytes:
    """Return the response to bytes that are not HTTP, within `exchange` or, if None, between requests."""
    response = server_error(status)
    head = HEADS.whole(response.status, response.own_headers(), len(response.body), request_id(None))
    return head if exchange is not None and exchange.head.method == b"HEAD" else head + response.body


def connection_scope(transport: asyncio.BaseTransport, root_path: str) -> dict[str, Any]:
    """Return the members that the ASGI scopes of all requests on a connection share."""
    return {
        "type": "http",
        "asgi": {"spec_version": "2.1", "version": "3.0"},
        "scheme": "http",
        "root_path": root_path,
        "client": _address(transport.get_extra_info("peername")),
        "server": _address(transport.get_extra_info("sockname")),
        "extensions": {},
    }


def _address(name: object) -> tuple[str, int] | None:
    return (name[0], name[1]) if isinstance(name, tuple) and len(name) > 1 else None
