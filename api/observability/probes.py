"""A port at which a separate thread answers probes, however busy the loop that serves callers is."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from api.observability.metrics_page import MetricsPage
from api.observability.readiness import NOT_READY, Readiness
from api.schema.envelope import Response, failure, refused, success
from engine.language.diagnostics import Entry
from engine.runtime.concurrency.beats import Beats, answer_within
from engine.runtime.concurrency.threads import LoopThread, turn_of
from engine.runtime.contract.errors import DetectorUnavailable

_REQUEST_S: Final = 5.0
"""The timeout for a request to arrive and its response to be read."""
_HEAD_BYTES_MAX: Final = 8 * 1024
_BODY_BYTES_AT_ONCE: Final = 64 * 1024

_BAD_REQUEST: Final = failure(400, [Entry(1006, "this is no request of HTTP/1")])
_BEAT_S: Final = 1.0
_HUNG_BEATS: Final = 30
"""The loop that serves callers counts as hung after this many consecutive beats without a turn."""
_NEW_S: Final = 0.5
"""How long to wait for a new answer from that loop before the last one is repeated."""
_CONNECTIONS_MAX: Final = 64
_ALIVE: Final = success(b'{"alive":true}')
_HUNG: Final = failure(503, [Entry(1501, "the event loop that serves callers does not turn")])
_NO_PAGE: Final = failure(503, [Entry(1501, "there is no page yet")])
_NO_SUCH_PATH: Final = refused([Entry(1004, "only /healthz, /readyz and /metrics are here")])
_NO_SUCH_METHOD: Final = refused([Entry(1005, "the path takes GET and HEAD")], ((b"allow", b"GET, HEAD"),))


class SmallServer:
    """Answers one request per connection by `respond`, which gets its method and path.

    Beyond `connections_max`, connections are closed without an answer.
    """

    def __init__(self, respond: Callable[[bytes, bytes], Awaitable[Response]], connections_max: int) -> None:
        self._respond = respond
        self._connections_max = connections_max
        self._connections = 0

    async def serve(self, listener: socket.socket) -> None:
        """Serve on a listening socket until it is cancelled."""
        # The server may close its socket, so it gets a duplicate.
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
            # The caller has left, is too slow, or sends too much. A timeout is an OSError, too.
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
        # Closing a connection before everything has arrived would take the response from the caller.
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


class Probes:
    """Answers /healthz, /readyz and /metrics on a listening socket; create it in the loop that is watched."""

    def __init__(self, listener: socket.socket) -> None:
        self._serving = asyncio.get_running_loop()
        self._turns = Beats()
        self._readiness: Readiness | None = None
        self._metrics: MetricsPage | None = None
        self._thread = LoopThread("probes")
        self._thread.begin(self._turns.count(partial(turn_of, self._serving), _BEAT_S, lambda: False))
        server = SmallServer(self._respond, _CONNECTIONS_MAX)
        self._thread.begin(server.serve(listener))

    def show(self, readiness: Readiness, metrics: MetricsPage) -> None:
        """Answer with the state of a service from now on; until then it is not ready."""
        self._readiness, self._metrics = readiness, metrics

    def end(self) -> None:
        """Stop answering."""
        self._thread.end()

    # -- answers ---------------------------------------------------------------------------------------------

    @property
    def _hangs(self) -> bool:
        return self._turns.missed >= _HUNG_BEATS

    async def _ready(self) -> Response:
        readiness = self._readiness
        if readiness is None or self._hangs:
            return NOT_READY
        return await self._new(readiness.answer(has_token=False)) or readiness.last

    async def _page(self) -> Response:
        metrics = self._metrics
        return _NO_PAGE if metrics is None else await self._new(metrics.answer()) or metrics.last or _NO_PAGE

    async def _new(self, answer: Coroutine[Any, Any, Response]) -> Response | None:
        """Make an answer in the loop that serves callers; None if that takes too long."""
        asked = asyncio.run_coroutine_threadsafe(answer, self._serving)
        with suppress(TimeoutError, DetectorUnavailable):
            return await answer_within(asyncio.wrap_future(asked), _NEW_S)
        return None

    async def _respond(self, method: bytes, path: bytes) -> Response:
        if path not in {b"/healthz", b"/readyz", b"/metrics"}:
            return _NO_SUCH_PATH
        if method not in {b"GET", b"HEAD"}:
            return _NO_SUCH_METHOD
        if path == b"/healthz":
            return _HUNG if self._hangs else _ALIVE
        return await (self._ready() if path == b"/readyz" else self._page())


@contextmanager
def probes(listener: socket.socket | None) -> Iterator[Probes | None]:
    """Answer probes within this context; None without a socket for them."""
    if listener is None:
        yield None
        return
    answering = Probes(listener)
    try:
        yield answering
    finally:
        answering.end()
