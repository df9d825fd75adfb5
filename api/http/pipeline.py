"""The path of every request: the fast path or Quart, CORS headers, metrics, spans and log."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory
from api.http.body.reading import read_rest, send_response
from api.http.request.head import (
    BY_NAME,
    authorization,
    body_bytes_max,
    canonical_path,
    check_headers,
    check_length,
    detector_name,
    idempotency_key,
)
from api.http.request.log import RequestLog
from api.http.request.timeout import STREAMS, RequestTimeout, RequestTimeouts
from api.http.service import PROGRESS, Service
from api.observability.request_metrics import CALLER_GONE, RequestMetrics
from api.observability.tracing import HttpRequest, Tracing
from api.schema.envelope import BATCH_FORMS, NDJSON, Headers, Response, answered, error_code, error_response
from api.schema.operation import ID_PATTERN, Operation
from api.server.exchange import RESPOND, CallerGone, Message, Receive, Scope, Send, part_of
from api.server.limits import STATE
from api.server.requests import FIELDS_STATE, REQUEST_ID_STATE, Fields
from api.settings import Settings
from engine.evaluation.wire.records import Ingest
from engine.runtime.contract.requests.operations import begin_request, evaluate, evaluate_batch, ingest
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.permits import Permit

_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_TAKEN: Final = (
    b"Authorization, Content-Type, Content-Encoding, Idempotency-Key, Last-Event-ID, "
    b"X-Request-ID, traceparent"
)
_SHOWN: Final = b"Allow, Retry-After, X-Request-ID"
_KEPT_S: Final = 600
"""How long a browser may keep the answer to a preflight request."""
_VARY: Final = (b"vary", b"Origin")
_PATH: Final = f"/api/detectors/(?:({ID_PATTERN})|{BY_NAME}[^/]+)/"
_INGEST_QUERY: Final = re.compile(rb"time=([A-Za-z0-9_.@-]{1,255})")
_BODY_IS_ENCODED: Final = frozenset({b"content-encoding", b"transfer-encoding"})
_EVALUATE: Final = "evaluate"
_INGEST: Final = "ingest"


@dataclass(frozen=True)
class Cors:
    """The origins whose pages may read responses. Browsers add no credentials of their own."""

    origins: frozenset[bytes]

    def preflight(self, method: str, head: Fields) -> Response | None:
        """Return the response to a preflight request of a listed origin; None for all other requests."""
        if method != "OPTIONS" or (origin := self._listed(head)) is None:
            return None
        if b"access-control-request-method" not in head.found:
            return None
        said = (
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _TAKEN),
            (b"access-control-max-age", b"%d" % _KEPT_S),
            _VARY,
        )
        return Response(200, b"", said, b"text/plain; charset=utf-8")

    def headers(self, head: Fields) -> Headers:
        """Return the headers to add to the response to any other request."""
        origin = self._listed(head)
        if origin is None:
            return (_VARY,)
        shown = (b"access-control-expose-headers", _SHOWN)
        return ((b"access-control-allow-origin", origin), shown, _VARY)

    def _listed(self, head: Fields) -> bytes | None:
        origin = head.only(b"origin")
        return origin if origin in self.origins else None


def cors_of(origins: str | None) -> Cors | None:
    """Return the origins in the setting; None if pages of other origins may read nothing."""
    return Cors(frozenset(one.strip().encode() for one in origins.split(","))) if origins else None


@dataclass(eq=False)
class FastPath:
    """Answers evaluations of known detectors by known callers, and refuses those that are wrong.

    It uses the functions of the checks before Quart's views, in the same order. It leaves everything else
    to Quart: other operations, streams, encoded bodies, and requests that need the directory.
    """

    settings: Settings
    operations: Iterable[Operation]
    """All operations, of which it answers three."""
    authenticator: Authenticator
    backend: Backend
    memory: BodyMemory
    _taken: dict[bytes, tuple[Operation, int]] = field(init=False, default_factory=dict)
    """The operations that it answers, and the maximum sizes of their bodies, by the ends of their paths."""
    _path: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        for one in self.operations:
            if one.is_evaluation:
                self._taken[one.path.partition("}/")[2].encode()] = one, body_bytes_max(one, self.settings)
        self._path = re.compile(b"%b(%b)" % (_PATH.encode(), b"|".join(self._taken)))

    async def answer(
        self, scope: Scope, head: Fields, receive: Receive, progress: RequestTimeout
    ) -> Response | None:
        """Return the response; None if Quart must answer, and nothing was read.

        Raises what the checks raise.
        """
        found = self._path.fullmatch(scope["raw_path"])
        if found is None or scope["method"] != "POST" or scope["http_version"] != "1.1":
            return None
        operation, bytes_max = self._taken[found[2]]
        name = operation.name
        query = None
        if scope["query_string"]:
            query = _INGEST_QUERY.fullmatch(scope["query_string"])
            if query is None or name != _INGEST:
                return None
        permit = self.authenticator.permit(authorization(head))
        if permit is None or not (permit.is_full or _may_pass(permit, name)):
            return None
        progress.mark_authenticated(permit)
        progress.operation = name
        if not _BODY_IS_ENCODED.isdisjoint(head.found):
            return None
        media_type = check_headers(
            head,
            bytes_max=self.settings.max_header_bytes,
            media_types=operation.media_types,
            takes_key=True,
            takes_any_type=operation.takes_any_type,
        )
        body_bytes = None if media_type == NDJSON else check_length(head, bytes_max)
        detector_id = self._detector(found[1], scope["raw_path"], permit)
        if detector_id is None or body_bytes is None:
            return None
        message = await receive()
        if message.get("more_body", False):
            reservation = self.memory.reserve(body_bytes, progress.end)
            body = await read_rest(message, receive, body_bytes, reservation)
            reservation.release()
        else:
            body = part_of(message)
        progress.body_read()
        if permit.rate is not None:
            permit.spend(1)
        key = idempotency_key(head) if b"idempotency-key" in head.found else ""
        if name == _INGEST:
            call = ingest(Ingest(body, query[1].decode() if query else None), key)
        elif name == _EVALUATE:
            call = evaluate(body, key)
        else:
            call = evaluate_batch(body, key, BATCH_FORMS[media_type])
        return answered(await self.backend.call(detector_id, call))

    def _detector(self, given: bytes | None, raw_path: bytes, permit: Permit) -> str | None:
        """Return the id of the detector in a path, by its id or its name.

        Returns None if it is not in the cache, or the token may not use it.
        """
        if given is not None:
            detector_id = given.decode()
            is_there = self.backend.exists(detector_id) and (permit.is_full or permit.sees(detector_id))
            return detector_id if is_there else None
        name = detector_name(raw_path)
        return None if name is None else self.backend.only_named(name, permit)


def _may_pass(permit: Permit, name: str) -> bool:
    """Whether a limited token may evaluate. Batches are counted elsewhere."""
    return permit.may("evaluate") and (permit.rate is None or name == _EVALUATE)


@dataclass(eq=False)
class Pipeline:
    """The ASGI middleware in front of Quart: answers evaluations itself, and counts each request once."""

    fast_path: FastPath
    quart: Service
    metrics: RequestMetrics
    timeouts: RequestTimeouts
    log: RequestLog
    cors: Cors | None = None
    """None if pages of other origins may read nothing."""
    tracing: Tracing | None = None
    """None if no spans are sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; Quart handles the server's start and end."""
        if scope["type"] != "http":
            await self.quart(scope, receive, send)  # type: ignore[arg-type]
            return
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
        except Exception as error:  # noqa: BLE001 -- the caller must get a response
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
            # Werkzeug would normalize the slashes; this path matches no route.
            path = f"/.{path}"
        state = {**scope.get("state", {}), PROGRESS: progress, FIELDS_STATE: head}
        try:
            await self.quart({**scope, "path": path, "state": state}, receive, send_on)  # type: ignore[arg-type]
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
            # Streams may take any time, and callers without a token must not fill the log.
            may_be_slow = progress.is_authenticated and progress.operation not in STREAMS
            self.log.write(scope, progress.operation, status, elapsed_s, body=body, may_be_slow=may_be_slow)
