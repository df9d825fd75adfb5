"""The fast path: nearly every request is an ordinary evaluation, and is answered here."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory
from api.http.body.reading import part_of, read_rest
from api.http.request.head import (
    BY_NAME,
    authorization,
    body_bytes_max,
    check_headers,
    check_length,
    detector_name,
    idempotency_key,
)
from api.http.request.timeout import RequestTimeout
from api.schema.envelope import BATCH_FORMS, NDJSON, Response, answered
from api.schema.operation import ID_PATTERN, Operation
from api.server.asgi import Receive, Scope
from api.server.http1.request_head import Fields
from api.settings import Settings
from engine.evaluation.wire.records.decoding import Ingest
from engine.runtime.contract.requests.operations import evaluate, evaluate_batch, ingest
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.permits import Permit

_PATH: Final = f"/api/detectors/(?:({ID_PATTERN})|{BY_NAME}[^/]+)/"
_INGEST_QUERY: Final = re.compile(rb"time=([A-Za-z0-9_.@-]{1,255})")
_BODY_IS_ENCODED: Final = frozenset({b"content-encoding", b"transfer-encoding"})

_EVALUATE: Final = "evaluate"
_INGEST: Final = "ingest"


class _Taken(NamedTuple):
    """What an operation takes."""

    name: str
    media_types: tuple[bytes, ...]
    takes_any_type: bool
    body_bytes_max: int


@dataclass(eq=False)
class FastPath:
    """Answers evaluations of known detectors by known callers, and refuses those that are wrong.

    It judges by the functions of the checks before Quart's views, and in their order. It leaves everything
    else untouched: other operations, streams, bodies that are encoded, and what the directory must be asked.
    """

    settings: Settings
    operations: Iterable[Operation]
    """All operations, of which it answers three."""
    authenticator: Authenticator
    backend: Backend
    memory: BodyMemory
    _taken: dict[bytes, _Taken] = field(init=False, default_factory=dict)
    """The operations that it answers, by the ends of their paths."""
    _path: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        for one in self.operations:
            if one.is_evaluation:
                bytes_max = body_bytes_max(one, self.settings)
                end = one.path.partition("}/")[2].encode()
                self._taken[end] = _Taken(one.name, one.media_types, one.takes_any_type, bytes_max)
        self._path = re.compile(b"%b(%b)" % (_PATH.encode(), b"|".join(self._taken)))

    async def answer(
        self, scope: Scope, head: Fields, receive: Receive, progress: RequestTimeout
    ) -> Response | None:
        """Return the response, or None if Quart has to answer: then nothing was read.

        Raises what the checks raise.
        """
        found = self._path.fullmatch(scope["raw_path"])
        if found is None or scope["method"] != "POST" or scope["http_version"] != "1.1":
            return None
        taken = self._taken[found[2]]
        name = taken.name
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
            media_types=taken.media_types,
            takes_key=True,
            takes_any_type=taken.takes_any_type,
        )
        body_bytes = None if media_type == NDJSON else check_length(head, taken.body_bytes_max)
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

        Returns None if it is not in the cache, or the token is not for it.
        """
        if given is not None:
            detector_id = given.decode()
            is_there = self.backend.exists(detector_id) and (permit.is_full or permit.sees(detector_id))
            return detector_id if is_there else None
        name = detector_name(raw_path)
        return None if name is None else self.backend.only_named(name, permit)


def _may_pass(permit: Permit, name: str) -> bool:
    """Whether a token that is bounded may evaluate. Several events are counted elsewhere."""
    return permit.may("evaluate") and (permit.rate is None or name == _EVALUATE)
