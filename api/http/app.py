"""The ASGI application: assembles the parts of the front end over a backend."""

import functools
from collections.abc import Awaitable, Callable
from functools import partial

import quart

from api.http.body.memory import BodyMemory
from api.http.checks import CHECKS
from api.http.pages import console_pages, docs_pages
from api.http.pipeline import FastPath, Pipeline, cors_of
from api.http.request.log import RequestLog
from api.http.request.timeout import RequestTimeouts
from api.http.routes import BLUEPRINTS, BY_ENDPOINT, OPERATIONS
from api.http.service import Service, quart_response
from api.observability.logs import ThrottleLog
from api.observability.metrics_page import MetricsPage
from api.observability.request_metrics import EXPIRED, OUT_OF_MEMORY, SPANS, THROTTLED, RequestMetrics
from api.observability.tracing import Sender, Tracing
from api.schema.envelope import Response
from api.settings import Settings
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.figures import ClusterFigures, Status
from engine.runtime.front_end import memory_budget
from engine.runtime.front_end.backend import Backend


@functools.cache
def _pages() -> dict[str, Response]:
    """Return all pages, none of which needs a token, by their paths."""
    return {**docs_pages(OPERATIONS), **console_pages()}


class Application(Pipeline):
    """The ASGI application. Its owner starts and closes the backend."""

    def __init__(self, settings: Settings, backend: Backend) -> None:
        self.budget = backend.memory
        self.memory = BodyMemory(settings.bodies_bytes_max, backend.memory)
        self._backend = backend
        self._throttle_log = ThrottleLog("requests were refused with 1401", memory_budget.THROTTLED)
        self._expired_log = ThrottleLog("requests got 1501 at their deadline", memory_budget.EXPIRED)
        self.metrics_page = MetricsPage(self._look)
        service = Service(settings, backend, self.memory, BY_ENDPOINT)
        self.readiness = service.readiness
        for check in CHECKS:
            service.before_request(check)
        for blueprint in BLUEPRINTS:
            service.register_blueprint(blueprint)
        for path, page in _pages().items():
            service.add_url_rule(path, path, _sending(page), methods=["GET"])
        if settings.metrics_host is None:
            service.add_url_rule("/metrics", "metrics", self._show_metrics, methods=["GET"])
        super().__init__(
            FastPath(settings, OPERATIONS, service.authenticator, backend, self.memory),
            service,
            RequestMetrics(),
            RequestTimeouts(settings.deadline_s),
            RequestLog(settings),
            cors_of(settings.cors_origin),
            None
            if settings.otlp_endpoint is None
            else Tracing(partial(_otlp_sender, settings.otlp_endpoint)),
        )
        if self.tracing is not None:
            service.after_serving(self.tracing.close)

    def announce_shutdown(self) -> None:
        """Make /readyz answer 503 from now on. Requests are still served."""
        self.readiness.announce_shutdown()

    def watch_certificate(self, is_stale: Callable[[], bool]) -> None:
        """Have the metrics show whether the certificate in use is an earlier one than that of the files."""
        self._backend.certificate_is_stale = is_stale

    async def report(self) -> None:
        """Add the counts of this front end to those of the service. Raises DetectorUnavailable."""
        self.metrics.count_causes(OUT_OF_MEMORY, self.budget.take_counts())
        throttled = self.budget.take_throttled()
        self.metrics.count_causes(THROTTLED, throttled)
        self._throttle_log.note(throttled)
        expired = self.budget.take_expired()
        self.metrics.count_causes(EXPIRED, expired)
        self._expired_log.note(expired)
        if self.tracing is not None:
            self.metrics.count_causes(SPANS, self.tracing.take_counts())
        await self._backend.add_counts(self.metrics.take())
        await self._backend.report_figures()

    async def _show_metrics(self) -> quart.Response:
        return quart_response(await self.metrics_page.answer())

    async def _look(self) -> tuple[Status, ClusterFigures]:
        """Return the data of /metrics; without the scheduler, this front end and the last known counts."""
        try:
            await self.report()
            cluster = await self._backend.cluster()
        except DetectorUnavailable as error:
            return self._backend.without_directory(error)
        return await self._backend.status(), cluster

    def end_streams(self) -> None:
        """End streams, which callers could keep open forever."""
        self.quart.streams.end()
        self.quart.timelines.end()
        self.quart.feeds.end()

    def refuse_all(self) -> None:
        """Refuse all requests that wait for a detector, and all later ones."""
        self._backend.refuse_all()


def _sending(page: Response) -> Callable[[], Awaitable[quart.Response]]:
    async def view() -> quart.Response:
        return quart_response(page)

    return view


def _otlp_sender(endpoint: str) -> Sender:
    # Imported here, because only tracing needs these optional packages.
    from api.observability.otlp import OtlpSender  # noqa: PLC0415

    return OtlpSender(endpoint, OPERATIONS)
