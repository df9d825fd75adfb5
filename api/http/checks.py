"""The checks of a request before its view is called, in order: the first defect decides."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from api.http.body.reading import GZIP, Inflating, read_body, skip_body
from api.http.request.head import (
    announced_length,
    authorization,
    body_bytes_max,
    check_headers,
    check_length,
    content_encoding,
    detector_name,
    idempotency_key,
)
from api.http.request.query import read_query
from api.http.service import request, service
from api.schema.envelope import NDJSON, RequestRefusal
from api.schema.messages.evaluations import BatchQuery
from api.schema.operation import ANY, ID_PATTERN
from engine.runtime.contract.errors import no_such_detector


async def check_token() -> None:
    """Raise RequestRefusal 1100 or 1101 without a valid token under /api, even for unknown paths."""
    path, operation = request.path, request.operation
    is_open = operation is None or operation.is_open
    if path == "/api" or path.startswith("/api/") or not is_open:
        request.permit = await service.authenticator.check(authorization(request.head))
        request.progress.mark_authenticated(request.permit)


async def check_route() -> None:
    """Raise NotFound or MethodNotAllowed."""
    if request.routing_exception is not None:
        raise request.routing_exception
    if request.operation is not None:
        request.progress.operation = request.operation.name


async def check_scope() -> None:
    """Raise RequestRefusal 1102 if the token may not execute the operation."""
    operation = request.operation
    if operation is None or operation.is_open or request.permit.is_full:
        return
    permit, scope = request.permit, operation.scope_of(request.query_string)
    if operation.is_of_all and permit.detectors is not None:
        raise RequestRefusal(1102, "the token is for some detectors only, and this concerns all")
    is_own = operation.is_for_itself and _arguments().get("id") == permit.token.id
    if not (scope == ANY or is_own or permit.may(scope)):
        raise RequestRefusal(1102, f"the token does not have the scope `{scope}`")


async def check_head() -> None:
    """Raise RequestRefusal 1006 or 1002."""
    operation, head = request.operation, request.head
    bytes_max = service.settings.max_header_bytes
    if operation is None or operation.body is None:
        check_headers(head, bytes_max=bytes_max, media_types=())
        return
    request.media_type = check_headers(
        head,
        bytes_max=bytes_max,
        media_types=operation.media_types,
        takes_key=operation.is_evaluation,
        takes_any_type=operation.takes_any_type,
    )
    if content_encoding(head) == GZIP:
        request.receive = Inflating(request.receive)
    if request.media_type == NDJSON and operation.is_evaluation and idempotency_key(head):
        # A stream is answered while it arrives, so there is no whole answer to repeat.
        raise RequestRefusal(1006, "Idempotency-Key: a stream takes none, since it has no single answer")


async def check_query() -> None:
    """Validate the query, which becomes an argument of the view. Raises RequestRefusal 1006."""
    operation = request.operation
    if operation is None or operation.query is None:
        return
    query = read_query(operation.query, request.query_string)
    if request.media_type == NDJSON and isinstance(query, BatchQuery):
        for name, said in (("dry_run", query.dry_run), ("details", query.details), ("strict", query.strict)):
            if said == "true":
                raise RequestRefusal(
                    1006, f"{name}: a stream takes none, since its lines are evaluated in parts"
                )
    _arguments()["query"] = query


async def check_size() -> None:
    """Raise RequestRefusal 1003 if the announced size is too large. Streams have no limit."""
    operation = request.operation
    if request.media_type != NDJSON or (operation is not None and operation.is_upload):
        check_length(request.head, _bytes_max())


async def check_detector() -> None:
    """Raise Refusal 1200, so that nothing is parsed for an unknown detector. A malformed id is unknown.

    Replaces a name in place of the id by the id.
    """
    detector_id = _arguments().get("detectorId")
    if detector_id is None:
        return
    if re.fullmatch(ID_PATTERN, detector_id):
        await service.backend.confirm(detector_id, request.permit)
        return
    name = detector_name(request.scope["raw_path"])
    if name is None:
        raise no_such_detector(detector_id, "; in place of an id, a name stands as `name:NAME`")
    _arguments()["detectorId"] = await service.backend.detector_named(name, request.permit)


async def take_body() -> None:
    """Read the body, which becomes an argument of the view. Raises RequestRefusal 1003 or 1401.

    Streams and uploads are left to their views. A body that the operation does not use is read and ignored.
    """
    operation = request.operation
    if request.media_type == NDJSON or (operation is not None and operation.is_upload):
        return
    if operation is None or operation.body is None:
        await skip_body(request.receive, _bytes_max())
    else:
        announced = None if isinstance(request.receive, Inflating) else announced_length(request.head)
        reservation = service.memory.reserve(announced, request.progress.end)
        request.reservation = reservation
        _arguments()["body"] = await read_body(request.receive, _bytes_max(), reservation)
        if operation.is_evaluation:
            # From here on, the queue of the detector counts the body.
            reservation.release()
    request.progress.body_read()


CHECKS: Final[tuple[Callable[[], Awaitable[None]], ...]] = (
    check_token,
    check_route,
    check_scope,
    check_head,
    check_query,
    check_size,
    check_detector,
    take_body,
)


def _arguments() -> dict[str, Any]:
    assert request.view_args is not None, "the path is known"
    return request.view_args


def _bytes_max() -> int:
    return body_bytes_max(request.operation, service.settings)
