"""The slow path: validates any request step by step, and reports the first thing that is wrong with it."""

import re
from dataclasses import dataclass
from typing import Any, Final

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory
from api.http.body.ndjson_stream import NdjsonStream, NdjsonStreams
from api.http.body.reading import read_body, skip_body
from api.http.handling.timeline_stream import EVENT_STREAM, TimelineStream, TimelineStreams
from api.http.request.head import (
    Head,
    accepts,
    announced_length,
    authorization,
    canonical_path,
    check_headers,
    check_length,
    idempotency_key,
    read_head,
)
from api.http.request.query import read_key, read_query
from api.http.request.timeout import OTHER, RequestTimeout
from api.http.router import Match, QuartCall, Route, Router, no_such_path
from api.schema.envelope import NDJSON, RequestRefusal
from api.schema.messages.evaluations import BatchQuery
from api.schema.messages.explanations import TimelineQuery
from api.schema.operation import ID_PATTERN, Operation
from api.server.asgi import Receive, Scope
from api.settings import Settings
from engine.runtime.broker.fleet import Fleet
from engine.runtime.contract.errors import no_such_detector

EVALUATIONS_STREAM: Final = "evaluate_stream"
TIMELINE_STREAM: Final = "timeline_stream"
STREAMS: Final = frozenset({EVALUATIONS_STREAM, TIMELINE_STREAM})
"""The operations under which metrics and the log count streams, which may take any time."""


@dataclass(frozen=True)
class SlowPath:
    """Validates a request in the documented order, reads its body, and returns what is to answer it.

    The order is: token, path, method, headers, query, announced size, detector. A stream has no size and is
    not read here. Everything else goes to Quart once its body is in memory.
    """

    settings: Settings
    router: Router
    authenticator: Authenticator
    fleet: Fleet
    memory: BodyMemory
    streams: NdjsonStreams
    timelines: TimelineStreams

    async def accept(
        self, scope: Scope, receive: Receive, request_timeout: RequestTimeout
    ) -> QuartCall | NdjsonStream | TimelineStream:
        """Return what answers the request. Raises CallerGone, Refusal or DetectorUnavailable."""
        head = read_head(scope["headers"])
        path = canonical_path(scope["raw_path"])
        route = await self._route(head, path, scope["method"], request_timeout)
        operation, detector_id = route.operation, route.ids.get("detectorId")
        request_timeout.operation = OTHER if operation is None else operation.name
        media_type = self._check_headers(head, operation)
        arguments: dict[str, Any] = {**route.ids}
        if operation is not None and operation.query is not None:
            arguments["query"] = read_query(operation.query, scope["query_string"])
        is_stream = media_type == NDJSON
        if is_stream and arguments["query"] == BatchQuery("true"):
            raise RequestRefusal(1006, "dry_run: a stream takes none, since its lines are evaluated in parts")
        bytes_max = self._bytes_max(operation)
        if not is_stream:
            check_length(head, bytes_max)
        if detector_id is not None:
            # Nothing is parsed for a detector that does not exist.
            await self._confirm(detector_id)
            if is_stream:
                request_timeout.operation = EVALUATIONS_STREAM
                return self.streams.open(detector_id, authorization(head))
            query = arguments.get("query")
            if isinstance(query, TimelineQuery) and accepts(scope["headers"], EVENT_STREAM):
                request_timeout.operation = TIMELINE_STREAM
                key = read_key(query.key)
                return TimelineStream(self.timelines, detector_id, route.ids["id"], key, authorization(head))
        reservation = self.memory.reserve(announced_length(head), request_timeout.end)
        if operation is None or operation.body is None:
            await skip_body(receive, bytes_max)
        else:
            arguments["body"] = await read_body(receive, bytes_max, reservation)
        request_timeout.body_read()
        if operation is not None:
            arguments |= self._arguments(operation, head, media_type)
            if operation.is_evaluation:
                # The queue of the detector counts the body from here on.
                reservation.release()
        return QuartCall(self.router.quart, scope, path, Match(route.rule, arguments), reservation)

    async def _route(self, head: Head, path: str, method: str, request_timeout: RequestTimeout) -> Route:
        """Authenticate the caller where that is needed, then find the route."""
        if path == "/api" or path.startswith("/api/"):
            await self.authenticator.check(authorization(head))
            request_timeout.mark_authenticated()
        route = self.router.find(path, method)
        needs_token = route.operation is not None and not route.operation.is_open
        if needs_token and not request_timeout.is_authenticated:
            # The URL map found an operation under a path that was not authenticated.
            raise no_such_path(path)
        return route

    def _check_headers(self, head: Head, operation: Operation | None) -> bytes:
        """Check the headers and give the media type of the body, empty where the operation takes none."""
        bytes_max = self.settings.max_header_bytes
        if operation is None or operation.body is None:
            return check_headers(head, bytes_max=bytes_max, media_types=())
        media_type = check_headers(
            head, bytes_max=bytes_max, media_types=operation.media_types, takes_key=operation.is_evaluation
        )
        if media_type == NDJSON and idempotency_key(head):
            # A stream is answered while it arrives, so there is no whole answer to repeat.
            raise RequestRefusal(1006, "Idempotency-Key: a stream takes none, since it has no single answer")
        return media_type

    def _bytes_max(self, operation: Operation | None) -> int:
        """Return the maximum size of the body."""
        settings = self.settings
        if operation is None or operation.body is None:
            return settings.max_discard_bytes
        return settings.max_batch_body_bytes if operation.is_batch else settings.max_body_bytes

    async def _confirm(self, detector_id: str) -> None:
        """Raise Refusal 1200 unless the detector exists. A malformed id is an unknown one."""
        if not re.fullmatch(ID_PATTERN, detector_id):
            raise no_such_detector(detector_id)
        await self.fleet.confirm(detector_id)

    def _arguments(self, operation: Operation, head: Head, media_type: bytes) -> dict[str, Any]:
        """Return the other arguments of the handler, after ids, query and body."""
        found: dict[str, Any] = {}
        if len(operation.media_types) > 1:
            found["media_type"] = media_type
        if operation.is_evaluation:
            found["key"] = idempotency_key(head)
        if operation.says_more:
            found["has_token"] = self.authenticator.objection(authorization(head)) is None
        return found
