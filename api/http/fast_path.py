"""The fast path: nearly every request is an ordinary evaluation, and is answered here."""

import functools
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory
from api.http.body.reading import part_of, read_rest
from api.http.request.head import (
    BY_NAME,
    authorization,
    detector_name,
    idempotency_key,
    media_type_of,
    read_head,
)
from api.http.request.timeout import RequestTimeout
from api.schema.envelope import BATCH_FORMS, JSON, RequestRefusal, Response, answered
from api.schema.operation import ID_PATTERN
from api.server.asgi import Receive, Scope
from api.settings import Settings
from engine.evaluation.wire.batches import BatchForm
from engine.evaluation.wire.records.decoding import Ingest
from engine.runtime.contract.requests.operations import evaluate, evaluate_batch, ingest
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.permits import Permit

_PATH: Final = re.compile(
    f"/api/detectors/(?:({ID_PATTERN})|{BY_NAME}[^/]+)/(evaluate(?:/batch)?|ingest)".encode()
)
_INGEST_QUERY: Final = re.compile(rb"time=([A-Za-z0-9_.@-]{1,255})")
_HEADERS: Final = frozenset({b"authorization", b"content-type", b"content-length"})
_HEADERS_WITH_KEY: Final = _HEADERS | {b"idempotency-key"}
_HEADERS_OF_RECORDS: Final = _HEADERS - {b"content-type"}

_EVALUATE: Final = "evaluate"
_INGEST: Final = "ingest"
_NAMES: Final = {b"evaluate": _EVALUATE, b"evaluate/batch": "evaluate_batch", b"ingest": _INGEST}
"""The names of the operations, by the ends of their paths."""


@functools.lru_cache(maxsize=64)
def _form(content_type: bytes) -> BatchForm | None:
    """Return the form that an unusual spelling of a Content-Type names."""
    return BATCH_FORMS.get(media_type_of(content_type))


class _Head(NamedTuple):
    """What the head of an evaluation says. The key is empty where there is none."""

    key: str
    form: BatchForm
    body_bytes: int
    permit: Permit


@dataclass(frozen=True)
class FastPath:
    """Answers valid evaluations of known detectors by known callers, and refuses those without a token.

    It leaves everything else untouched, and Quart reports what is wrong with it.
    """

    settings: Settings
    authenticator: Authenticator
    backend: Backend
    memory: BodyMemory

    async def answer(self, scope: Scope, receive: Receive, progress: RequestTimeout) -> Response | None:
        """Return the response, or None if Quart has to answer: then nothing was read."""
        found = _PATH.fullmatch(scope["raw_path"])
        if found is None:
            return None
        name = _NAMES[found[2]]
        query = None
        if scope["query_string"]:
            query = _INGEST_QUERY.fullmatch(scope["query_string"])
            if query is None or name != _INGEST:
                return None
        head = self._check(scope, name)
        if head is None:
            return None
        permit = head.permit
        progress.mark_authenticated(permit)
        detector_id = self._detector(found[1], scope["raw_path"], permit)
        if detector_id is None:
            return None
        progress.operation = name
        message = await receive()
        if message.get("more_body", False):
            reservation = self.memory.reserve(head.body_bytes, progress.end)
            body = await read_rest(message, receive, head.body_bytes, reservation)
            reservation.release()
        else:
            body = part_of(message)
        progress.body_read()
        if permit.rate is not None:
            permit.spend(1)
        if name == _INGEST:
            call = ingest(Ingest(body, query[1].decode() if query else None), head.key)
        elif name == _EVALUATE:
            call = evaluate(body, head.key)
        else:
            call = evaluate_batch(body, head.key, head.form)
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

    def _check(self, scope: Scope, name: str) -> _Head | None:
        """Return what the head says if it is valid, with a known token and a known length, otherwise None.

        Raises RequestRefusal 1100 or 1101, and DetectorUnavailable where no token can be judged.
        """
        settings = self.settings
        head = read_head(scope["headers"])
        # The token is judged before all else, so a missing or malformed one is refused here.
        permit = self.authenticator.permit(authorization(head))
        if permit is None or not (permit.is_full or _may_pass(permit, name)):
            return None
        if scope["method"] != "POST" or scope["http_version"] != "1.1":
            return None
        sent = head.found
        has_key = b"idempotency-key" in sent
        if sent.keys() != (_HEADERS_WITH_KEY if has_key else _HEADERS) and not (
            name == _INGEST and _HEADERS_OF_RECORDS <= sent.keys() <= _HEADERS_WITH_KEY
        ):
            return None
        if head.repeated or head.size_bytes > settings.max_header_bytes:
            return None
        try:
            key = idempotency_key(head) if has_key else ""
        except RequestRefusal:
            # The checks meet the same defect, and perhaps others.
            return None
        bytes_max = settings.max_body_bytes if name == _EVALUATE else settings.max_batch_body_bytes
        content_type = JSON if name == _INGEST else sent[b"content-type"]
        form = BATCH_FORMS.get(content_type) or _form(content_type)
        body_bytes = int(sent[b"content-length"])
        if form is None or body_bytes > bytes_max or (name == _EVALUATE and form != "json"):
            return None
        return _Head(key, form, body_bytes, permit)


def _may_pass(permit: Permit, name: str) -> bool:
    """Whether a token that is bounded may evaluate. Several events are counted elsewhere."""
    return permit.may("evaluate") and (permit.rate is None or name == _EVALUATE)
