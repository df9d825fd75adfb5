"""What every request passes: the fast path or Quart, metrics, spans and log."""

from dataclasses import dataclass

from api.http.body.reading import send_response
from api.http.cors import Cors
from api.http.fast_path import FastPath
from api.http.request.head import canonical_path
from api.http.request.log import RequestLog
from api.http.request.timeout import STREAMS, RequestTimeout, RequestTimeouts
from api.http.service import PROGRESS
from api.observability.request_metrics import CALLER_GONE, RequestMetrics
from api.observability.tracing.http_request import HttpRequest
from api.observability.tracing.tracing import Tracing
from api.schema.envelope import error_code, error_response
from api.server.asgi import App, CallerGone, Message, Receive, Scope, Send
from api.server.connection_limit import STATE
from api.server.http1.exchange import RESPOND
from api.server.http1.request_head import FIELDS_STATE, REQUEST_ID_STATE, Fields
from engine.runtime.contract.requests.current_request import begin_request


@dataclass(frozen=True)
class Pipeline:
    """The ASGI middleware in front of Quart: answers evaluations itself, and counts each request once."""

    fast_path: FastPath
    quart: App
    metrics: RequestMetrics
    timeouts: RequestTimeouts
    log: RequestLog
    cors: Cors | None = None
    """None if pages of other origins may read nothing."""
    tracing: Tracing | None = None
    """None if no spans are sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        state = scope.get("state", {})
        head = state.get(FIELDS_STATE) or Fields(scope["headers"])
        preflight = None if self.cors is None else self.cors.preflight(scope["method"], head)
        begin_request(HttpRequest(state.get(REQUEST_ID_STATE, b"").decode("ascii"), head))
        progress = RequestTimeout(self.timeouts, receive, state.get(STATE))
        try:
            with progress:
                response = preflight or await self.fast_path.answer(scope, head, receive, progress)
        except CallerGone:
            self._finish(scope, progress, CALLER_GONE)
            return
        except Exception as error:  # noqa: BLE001 -- whatever it is, the caller is owed a response
            response = error_response(error)
        if response is None:
            await self._answer_by_quart(scope, head, receive, send, progress)
            return
        if self.cors is not None and response is not preflight:
            response = response._replace(headers=(*response.headers, *self.cors.headers(head)))
        self._finish(scope, progress, response.status, response.body)
        respond = state.get(RESPOND)
        if respond is None:
            await send_response(response, send)
        else:
            await respond(response.status, response.own_headers(), *response.pieces)

    async def _answer_by_quart(
        self, scope: Scope, head: Fields, receive: Receive, send: Send, progress: RequestTimeout
    ) -> None:
        status, body = CALLER_GONE, b""

        async def send_on(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.cors is not None:
                    message["headers"] = [*message["headers"], *self.cors.headers(head)]
            body = body or message.get("body", b"")
            await send(message)

        path = canonical_path(scope["raw_path"])
        if path[:1] != "/" or path[1:2] == "/":
            # Werkzeug would add a missing slash, and drop all but one. This leads nowhere.
            path = f"/.{path}"
        state = {**scope.get("state", {}), PROGRESS: progress, FIELDS_STATE: head}
        try:
            await self.quart({**scope, "path": path, "state": state}, receive, send_on)
        except CallerGone:
            status = CALLER_GONE
        self._finish(scope, progress, status, progress.stream_error or body)

    def _finish(self, scope: Scope, progress: RequestTimeout, status: int, body: bytes = b"") -> None:
        """Count a request, and log it if it is slow or all requests are logged."""
        elapsed_s = progress.elapsed_s
        self.metrics.count(progress.operation, status, elapsed_s)
        code = error_code(body)
        if code is not None:
            self.metrics.count_refusal(progress.operation, code)
        if self.tracing is not None and progress.is_authenticated:
            self.tracing.note(scope, progress.operation, status, code, elapsed_s)
        if elapsed_s >= self.log.from_s:
            # A stream may take any time, and callers without a token must not fill the log.
            may_be_slow = progress.is_authenticated and progress.operation not in STREAMS
            self.log.write(scope, progress.operation, status, elapsed_s, body=body, may_be_slow=may_be_slow)
