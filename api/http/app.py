"""The application that callers reach: Quart's routes, behind the dispatcher."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from quart import Quart, request
from quart import Response as QuartResponse
from quart.routing import QuartRule

from api.http import pipeline as dispatch
from api.http.authentication import Authenticator
from api.http.body.discard import BodyDiscard
from api.http.body.memory import BodyMemory
from api.http.body.ndjson_stream import NdjsonStreams
from api.http.fast_path import FastPath
from api.http.handlers import Handlers
from api.http.pipeline import Pipeline
from api.observability.metrics import CONTENT_TYPE, metrics_text
from api.observability.request_metrics import RequestMetrics
from api.schema.docs import TO_DOCS, Page, pages
from api.schema.envelope import DeadlinePassed, Response, error_response
from api.schema.operations import OPERATIONS, Operation
from api.settings import Settings
from engine.runtime.broker.fleet import Fleet

_PARSERS: Final = 2
"""Threads that parse conditions; a long text keeps one busy for up to a second."""
_DECODERS: Final = 2
"""Threads that decode bodies; a parse must not keep a rule from being created."""


class ExactMethodsRule(QuartRule):
    """A route that takes the methods that it names; HEAD is none of them unless it says so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.methods is not None:
            self.methods.discard("HEAD")


class Application(Pipeline):
    """The ASGI application. It neither starts nor closes the fleet that it serves."""

    def __init__(self, settings: Settings, fleet: Fleet) -> None:
        self._parsers = ThreadPoolExecutor(_PARSERS, thread_name_prefix="parse")
        self._decoders = ThreadPoolExecutor(_DECODERS, thread_name_prefix="decode")
        self._routes = Handlers(settings, fleet, parsers=self._parsers, decoders=self._decoders)
        self.quart = _quart(settings, self._routes)
        self._fleet = fleet
        self._meter = RequestMetrics()
        self.quart.add_url_rule("/metrics", "/metrics", self._metrics, methods=["GET"])
        self.quart.add_url_rule("/", "/", _page(TO_DOCS), methods=["GET"])
        self.quart.after_serving(self._end)
        gate = Authenticator(fleet, settings.bootstrap_token)
        paths = self.quart.url_map.bind("localhost")
        self.memory = memory = BodyMemory(settings.max_reading_bytes)
        hot = FastPath(settings, gate, fleet, memory)
        self._drains = BodyDiscard(settings.max_drain_bytes)
        self._streams = NdjsonStreams(
            settings,
            fleet,
            self._drains,
            gate=gate,
            memory=memory,
            deadline_s=settings.deadline_s + dispatch.BACKSTOP_S,
        )
        super().__init__(
            settings,
            gate,
            hot,
            self._streams,
            self._drains,
            fleet=fleet,
            memory=memory,
            meter=self._meter,
            quart=self.quart,
            paths=paths,
        )

    def announce_shutdown(self) -> None:
        """From now on /readyz says that the service is going away; requests are still served."""
        self._routes.announce_shutdown()

    async def tally(self) -> None:
        """Have what was counted here join what other front ends count. Raises DetectorUnavailable."""
        await self._fleet.tally(self._meter.take())

    async def _metrics(self) -> QuartResponse:
        await self.tally()
        return _response(Response(200, metrics_text(await self._fleet.status()), content_type=CONTENT_TYPE))

    def end_streams(self) -> None:
        """Let all end that would go on for as long as a caller likes: streams, and the draining of bodies."""
        self._streams.end()
        self._drains.end()

    def refuse_all(self) -> None:
        """Answer all that waits for a detector or for word of one, and take nothing more."""
        self._fleet.refuse_all()

    async def _end(self) -> None:
        for executor in (self._parsers, self._decoders):
            executor.shutdown(wait=False, cancel_futures=True)


def create_app(settings: Settings, fleet: Fleet) -> Application:
    """Give the application over a fleet that somebody else starts and closes."""
    return Application(settings, fleet)


def _quart(settings: Settings, routes: Handlers) -> Quart:
    app = Quart("rule_detector", static_folder=None)
    app.url_rule_class = ExactMethodsRule
    # Bodies are read and bounded, and deadlines kept, before a request comes here.
    app.config.update(
        BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None, MAX_CONTENT_LENGTH=None, PROVIDE_AUTOMATIC_OPTIONS=False
    )
    for operation in OPERATIONS:
        view = _view(operation, getattr(routes, operation.name), settings.deadline_s + dispatch.BACKSTOP_S)
        path = operation.path.replace("{", "<").replace("}", ">")
        app.add_url_rule(path, operation.name, view, methods=[operation.method])
    for path, page in pages().items():
        app.add_url_rule(path, path, _page(page), methods=["GET"])

    @app.errorhandler(Exception)
    async def failed(error: Exception) -> QuartResponse:
        return _response(error_response(error))

    return app


def _view(
    operation: Operation, handler: Callable[..., Awaitable[Response]], deadline_s: float
) -> Callable[..., Awaitable[QuartResponse]]:
    async def view(**ids: str) -> QuartResponse:
        arguments: dict[str, Any] = {**ids}
        if operation.query is not None:
            arguments["query"] = request.scope[dispatch.QUERY]  # type: ignore[typeddict-item]  # as the body
        if operation.body is not None:
            arguments["body"] = request.scope[dispatch.BODY]  # type: ignore[typeddict-item]  # put there by the dispatcher
        if len(operation.media_types) > 1:
            arguments["media_type"] = request.headers["content-type"].encode()
        if operation.takes_key:
            arguments["key"] = request.headers.get("idempotency-key", "")
        if operation.says_more:
            arguments["has_token"] = dispatch.TOKEN_KNOWN.decode() in request.headers
        try:
            async with asyncio.timeout(deadline_s):
                return _response(await handler(**arguments))
        except TimeoutError:
            raise DeadlinePassed from None

    return view


def _page(page: Page) -> Callable[[], Awaitable[QuartResponse]]:
    async def view() -> QuartResponse:
        return _response(Response(page.status, page.body, page.headers, page.content_type))

    return view


def _response(reply: Response) -> QuartResponse:
    headers = {name.decode(): value.decode() for name, value in reply.all_headers()}
    headers.setdefault("cache-control", "no-store")
    return QuartResponse(reply.body, reply.status, headers)
