"""The pipeline that every request passes: fast path or slow path, response, metrics and log."""

from dataclasses import dataclass
from http import HTTPStatus

from api.http.body.reading import send_response
from api.http.fast_path import FastPath
from api.http.request.log import RequestLog, error_code
from api.http.request.timeout import RequestTimeout, RequestTimeouts
from api.http.slow_path import STREAMS, SlowPath
from api.observability.request_metrics import CALLER_GONE, RequestMetrics
from api.observability.tracing.http_request import HttpRequest
from api.observability.tracing.tracing import Tracing
from api.schema.envelope import Response, error_response
from api.server.asgi import CallerGone, Receive, Scope, Send
from api.server.connection_limit import STATE
from api.server.http1.exchange import RESPOND
from api.server.http1.request_ids import STATE as ID_STATE
from engine.runtime.contract.requests.current_request import begin_request


@dataclass(frozen=True)
class Pipeline:
    """Answers each request once, and counts it."""

    fast_path: FastPath
    slow_path: SlowPath
    metrics: RequestMetrics
    timeouts: RequestTimeouts
    log: RequestLog
    tracing: Tracing | None = None
    """None if no spans are sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        state = scope.get("state", {})
        begin_request(HttpRequest(state.get(ID_STATE, b"").decode("ascii"), scope["headers"]))
        request_timeout = RequestTimeout(self.timeouts, receive, state.get(STATE))
        try:
            with request_timeout:
                response = await self.fast_path.answer(scope, receive, request_timeout)
                outcome = response or await self.slow_path.accept(scope, receive, request_timeout)
        except CallerGone:
            self._finish(scope, request_timeout, CALLER_GONE)
            return
        except Exception as error:  # noqa: BLE001 -- the one place where an exception becomes a response
            outcome = error_response(error)
        if not isinstance(outcome, Response):
            status, body = await outcome.serve(receive, send)
            self._finish(scope, request_timeout, status, body)
            # The status of a stream is sent before the error that ends it.
            self._count_refusal(request_timeout, body)
            return
        self._finish(scope, request_timeout, outcome.status, outcome.body)
        if outcome.status >= HTTPStatus.BAD_REQUEST:
            self._count_refusal(request_timeout, outcome.body)
        respond = state.get(RESPOND)
        if respond is None:
            await send_response(outcome, send)
        else:
            await respond(outcome.status, outcome.own_headers(), *outcome.pieces)

    def _count_refusal(self, request_timeout: RequestTimeout, body: bytes) -> None:
        if (code := error_code(body)) is not None:
            self.metrics.count_refusal(request_timeout.operation, code)

    def _finish(self, scope: Scope, request_timeout: RequestTimeout, status: int, body: bytes = b"") -> None:
        """Count a request, and log it if it is slow or all requests are logged."""
        elapsed_s = request_timeout.elapsed_s
        self.metrics.count(request_timeout.operation, status, elapsed_s)
        if self.tracing is not None and request_timeout.is_authenticated:
            self.tracing.note(scope, request_timeout.operation, status, error_code(body), elapsed_s)
        if elapsed_s >= self.log.from_s:
            # A stream may take any time, and callers without a token must not fill the log.
            may_be_slow = request_timeout.is_authenticated and request_timeout.operation not in STREAMS
            self.log.write(
                scope, request_timeout.operation, status, elapsed_s, body=body, may_be_slow=may_be_slow
            )
