"""A port at which a thread of its own answers probes, whatever the loop that serves callers does."""

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from api.observability.metrics_page import MetricsPage
from api.observability.readiness import NOT_READY, Readiness
from api.observability.small_server import SmallServer
from api.schema.envelope import Response, failure, refused, success
from engine.language.diagnostics import Entry
from engine.runtime.concurrency.beats import Beats, answer_within
from engine.runtime.concurrency.threads import LoopThread, turn_of
from engine.runtime.contract.errors import DetectorUnavailable

_BEAT_S: Final = 1.0
_HUNG_BEATS: Final = 30
"""After this many beats in a row without a turn, the loop that serves callers counts as hung."""
_NEW_S: Final = 0.5
"""How long that loop may take to give a new answer; then the last one is given again."""
_CONNECTIONS_MAX: Final = 64

_ALIVE: Final = success(b'{"alive":true}')
_HUNG: Final = failure(503, [Entry(1501, "the event loop that serves callers does not turn")])
_NO_PAGE: Final = failure(503, [Entry(1501, "there is no page yet")])
_NO_SUCH_PATH: Final = refused([Entry(1004, "only /healthz, /readyz and /metrics are here")])
_NO_SUCH_METHOD: Final = refused([Entry(1005, "the path takes GET and HEAD")], ((b"allow", b"GET, HEAD"),))


class Probes:
    """Answers /healthz, /readyz and /metrics on a listening socket; create it in the loop that is watched."""

    def __init__(self, listener: socket.socket) -> None:
        self._serving = asyncio.get_running_loop()
        self._turns = Beats()
        self._readiness: Readiness | None = None
        self._metrics: MetricsPage | None = None
        self._thread = LoopThread("probes")
        self._thread.begin(self._watch())
        server = SmallServer(self._respond, _CONNECTIONS_MAX)
        self._thread.begin(server.serve(listener))

    def show(self, readiness: Readiness, metrics: MetricsPage) -> None:
        """Show the state of a service from now on; until then it is not ready."""
        self._readiness, self._metrics = readiness, metrics

    def end(self) -> None:
        """Answer no more."""
        self._thread.end()

    async def _watch(self) -> None:
        await self._turns.count(self._turn, _BEAT_S, lambda: False)

    async def _turn(self) -> None:
        await turn_of(self._serving)

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
        """Have the loop that serves callers make an answer; None if it does not soon."""
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
