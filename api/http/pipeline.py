"""What every request meets first: it is judged in order, and an evaluation is answered ahead of Quart."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from werkzeug.exceptions import MethodNotAllowed, NotFound
from werkzeug.routing import MapAdapter

from api.http.authentication import Authenticator
from api.http.body.discard import BodyDiscard
from api.http.body.memory import BodyMemory, Claim
from api.http.body.ndjson_stream import NdjsonStream, NdjsonStreams
from api.http.body.reading import CallerGone, Message, Receive, Send, read_body, send_response, skip_body
from api.http.fast_path import FastPath
from api.http.request.head import (
    Head,
    announced_length,
    authorization,
    canonical_path,
    check_headers,
    check_length,
    idempotency_key,
    is_ambiguous,
    read_head,
)
from api.http.request.log import RequestLog
from api.http.request.query import read_query
from api.http.request.timeout import OTHER, RequestTimeout, RequestTimeouts
from api.observability.request_metrics import CALLER_GONE, RequestMetrics
from api.schema.envelope import NDJSON, Headers, RequestRefusal, Response, error_response
from api.schema.operations import OPERATIONS, Operation
from api.server.connection_limit import STATE
from api.server.http1 import REPLY
from api.server.request_ids import STATE as ID_STATE
from api.settings import Settings
from engine.runtime.broker.fleet import Fleet
from engine.runtime.contract.errors import no_such_detector
from engine.runtime.contract.request_ids import REQUEST_ID

Scope = Mapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]

BACKSTOP_S: Final = 2.0
"""How much longer than its deadline a request may take, so that who knows what became of it can say so."""

TOKEN_KNOWN: Final = b"x-token-known"
"""A header for handlers that say more to who has a token. Headers of callers are not passed on."""

STREAM: Final = "evaluate_stream"
"""The batch that is a stream: what it takes is not to be mixed with what others take."""

QUERY: Final = "rule_detector.query"
BODY: Final = "rule_detector.body"
"""Under this name the scope that Quart is given holds the body of the request."""

_ID: Final = re.compile(r"[0-9a-f]{32}")
_BY_NAME: Final = {operation.name: operation for operation in OPERATIONS}


class Handover(NamedTuple):
    """A request that has been judged and read, for Quart to route to its handler."""

    scope: Scope
    receive: Receive
    claim: Claim
    """On the memory of the body, for as long as the handler has it."""


class Pipeline:
    """The ASGI application in front of Quart.

    It has plain evaluations answered on the hot path. Of all else it judges token, path, method, headers,
    announced size and detector in this order, reads the body, and leaves the rest to Quart, whose map of
    routes it asks. Streams of lines, which have no size and no one deadline, are served as they come.
    """

    def __init__(
        self,
        settings: Settings,
        gate: Authenticator,
        hot: FastPath,
        streams: NdjsonStreams,
        drains: BodyDiscard,
        *,
        fleet: Fleet,
        memory: BodyMemory,
        meter: RequestMetrics,
        quart: App,
        paths: MapAdapter,
    ) -> None:
        self._settings = settings
        self._gate = gate
        self._hot = hot
        self._streams = streams
        self._drains = drains
        self._fleet = fleet
        self._memory = memory
        self._meter = meter
        self._log = RequestLog(settings)
        self._quart = quart
        self._paths = paths
        self._watches = RequestTimeouts(settings.deadline_s, BACKSTOP_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or what the server asks at its start and end."""
        if scope["type"] != "http":
            await self._quart(scope, receive, send)
            return
        state = scope.get("state", {})
        REQUEST_ID.set(state.get(ID_STATE, b"").decode("ascii"))
        watch = RequestTimeout(self._watches, receive, state.get(STATE))
        outcome: Response | Handover | NdjsonStream
        try:
            with watch:
                reply = await self._hot.answer(scope, receive, watch)
                outcome = reply or await self._serve(scope, receive, watch)
        except CallerGone:
            self._over(scope, watch, CALLER_GONE)
            return
        except Exception as error:  # noqa: BLE001 -- each becomes a reply; this is where that happens
            outcome = error_response(error)
            if is_ambiguous(read_head(scope["headers"])):
                outcome = outcome.closing()
        if isinstance(outcome, NdjsonStream):
            stayed = await outcome.serve(receive, send)
            self._over(scope, watch, 200 if stayed else CALLER_GONE)
            return
        if isinstance(outcome, Handover):
            try:
                status, begun = await self._by_quart(outcome, send)
            finally:
                outcome.claim.release()
            self._over(scope, watch, status, begun)
            return
        self._over(scope, watch, outcome.status, outcome.body)
        if watch.body_is_read:
            at_once = state.get(REPLY)
            if at_once is None or not await at_once(outcome.status, outcome.own_headers(), outcome.body):
                await send_response(outcome, send)
        else:
            await self._drains.refuse(outcome, receive, send, watch.left_s)

    def _over(self, scope: Scope, watch: RequestTimeout, status: int, body: bytes = b"") -> None:
        """Count a request, and log it where it is to be logged."""
        elapsed_s = watch.elapsed_s
        self._meter.count(watch.operation, status, elapsed_s)
        if elapsed_s >= self._log.from_s:
            # A stream may take as long as it likes; and without a token nobody is to fill the log.
            may_be_slow = watch.is_authenticated and watch.operation != STREAM
            self._log.write(scope, watch.operation, status, elapsed_s, body=body, may_be_slow=may_be_slow)

    async def _by_quart(self, handover: Handover, send: Send) -> tuple[int, bytes]:
        """Have Quart answer, and give the status, and what the body begins with.

        It begins no reply where the caller has gone.
        """
        status, begun = CALLER_GONE, b""

        async def send_on(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                begun = begun or message.get("body", b"")
            await send(message)

        await self._quart(handover.scope, handover.receive, send_on)
        return status, begun

    async def _serve(self, scope: Scope, receive: Receive, watch: RequestTimeout) -> Handover | NdjsonStream:
        head = read_head(scope["headers"])
        path = canonical_path(scope["raw_path"])
        operation, ids = await self._judge(head, path, scope["method"], watch)
        watch.operation = operation.name if operation is not None else OTHER
        media_type = self._judge_headers(head, operation)
        query = None
        if operation is not None and operation.query is not None:
            query = read_query(operation.query, scope["query_string"])
        is_stream = media_type == NDJSON
        bytes_max = self._bytes_max(operation)
        if not is_stream:
            check_length(head, bytes_max)
        if (detector_id := ids.get("detectorId")) is not None:
            # Before the body is read: nothing is parsed for a detector that does not exist.
            await self._confirm(detector_id)
            if is_stream:
                watch.operation = STREAM
                return self._streams.open(detector_id, authorization(head))
        claim = self._memory.claim(announced_length(head), watch.end)
        body = await self._read(receive, bytes_max, operation, claim)
        if operation is not None and operation.is_evaluation:
            # From here on it waits for its detector, whose queue is bounded too.
            claim.release()
        watch.body_read()
        key = idempotency_key(head) if operation is not None and operation.takes_key else ""
        says_more = operation is not None and operation.says_more and self._gate.knows(authorization(head))
        headers = _passed_on(media_type, key, says_more=says_more)
        read = {QUERY: query, BODY: body}
        return Handover(*_for_quart(scope, path, read, headers, receive), claim)

    async def _judge(
        self, head: Head, path: str, method: str, watch: RequestTimeout
    ) -> tuple[Operation | None, Mapping[str, str]]:
        """Judge token, path and method; give the operation, and the ids that the path has.

        The operation is None for a path that is none of the API.
        """
        is_api = path == "/api" or path.startswith("/api/")
        if is_api:
            await self._gate.check(authorization(head))
            watch.mark_authenticated()
        # The map would read past blank segments, and past a missing slash at the start.
        if "//" in path or not path.startswith("/"):
            raise _no_such_path(path)
        try:
            endpoint, ids = self._paths.match(path, method)
        except NotFound:
            raise _no_such_path(path) from None
        except MethodNotAllowed as error:
            allowed = ", ".join(sorted(error.valid_methods or ()))
            raise RequestRefusal(
                1005,
                f"the path takes {allowed}, not `{method[:20]}`",
                headers=((b"allow", allowed.encode()),),
            ) from None
        operation = _BY_NAME.get(endpoint)
        if not is_api and operation is not None and not operation.is_open:
            # The map of routes found an operation under a path for which no token was asked.
            raise _no_such_path(path)
        return operation, ids

    def _judge_headers(self, head: Head, operation: Operation | None) -> bytes:
        """Judge the headers, and give the media type of the body; it is empty where none is taken."""
        bytes_max = self._settings.max_header_bytes
        if operation is None or operation.body is None:
            return check_headers(head, bytes_max=bytes_max, media_types=())
        media_type = check_headers(
            head, bytes_max=bytes_max, media_types=operation.media_types, takes_key=operation.takes_key
        )
        if media_type == NDJSON and idempotency_key(head):
            # What is answered while it is still coming has no answer that could be given again.
            raise RequestRefusal(1006, "Idempotency-Key: a stream of lines is no one request; it takes none")
        return media_type

    def _bytes_max(self, operation: Operation | None) -> int:
        """Give the size that a body may have."""
        settings = self._settings
        if operation is None or operation.body is None:
            return settings.max_drain_bytes
        return settings.max_batch_body_bytes if operation.is_batch else settings.max_body_bytes

    async def _confirm(self, detector_id: str) -> None:
        """Raise Refusal 1200 unless there is such a detector. An id of the wrong form is an unknown one."""
        if not _ID.fullmatch(detector_id):
            raise no_such_detector(detector_id)
        await self._fleet.confirm(detector_id)

    async def _read(
        self, receive: Receive, bytes_max: int, operation: Operation | None, claim: Claim
    ) -> bytes:
        """Give the body; one that the operation does not take is read and dropped."""
        if operation is None or operation.body is None:
            await skip_body(receive, bytes_max)
            return b""
        return await read_body(receive, bytes_max, claim)


def _no_such_path(path: str) -> RequestRefusal:
    return RequestRefusal(1004, f"there is no path `{path[:200]}`")


def _passed_on(media_type: bytes, key: str, *, says_more: bool) -> Headers:
    """Give the headers that go on to the handler, judged."""
    known = b"yes" if says_more else b""
    named = ((b"content-type", media_type), (b"idempotency-key", key.encode()), (TOKEN_KNOWN, known))
    return tuple((name, value) for name, value in named if value)


def _for_quart(
    scope: Scope, path: str, read: Mapping[str, object], headers: Headers, receive: Receive
) -> tuple[Scope, Receive]:
    """Give Quart the request without query and with few headers: it has no use for them and could stumble.

    What was `read` of the request travels beside it: Quart would copy a body several times.
    """
    messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive_read() -> Message:
        return messages.pop() if messages else await receive()

    plain = {
        **scope,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), *headers],
        **read,
    }
    return plain, receive_read
