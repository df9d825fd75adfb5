"""The way of nearly every request: a plain evaluation, answered in one go."""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory
from api.http.body.reading import Receive, part_of, read_rest
from api.http.request.head import idempotency_key, media_type_of, read_head
from api.http.request.timeout import RequestTimeout
from api.schema.envelope import BATCH_FORMS, Response, answered
from api.settings import Settings
from engine.evaluation.wire.events import BatchForm
from engine.runtime.broker.fleet import Fleet
from engine.runtime.contract.operations import evaluate, evaluate_batch

_PATH: Final = re.compile(rb"/api/detectors/([0-9a-f]{32})/evaluate(/batch)?")
_SINGLE: Final = "evaluate"
_BATCH: Final = "evaluate_batch"
_PLAIN: Final = frozenset({b"authorization", b"content-type", b"content-length"})
_WITH_KEY: Final = _PLAIN | {b"idempotency-key"}


@functools.lru_cache(maxsize=64)
def _form(content_type: bytes) -> BatchForm | None:
    """Give the form that a Content-Type stands for which is not spelt in the usual way."""
    return BATCH_FORMS.get(media_type_of(content_type))


class Plain(NamedTuple):
    """What a plain evaluation says beside its body. The key is empty where it has none."""

    key: str
    form: BatchForm
    body_bytes: int


class FastPath:
    """Answers evaluations about which nothing is out of the ordinary.

    What is judged here is judged again on the long way, which says what is wrong; this one only has fewer
    steps. Whatever it does not let through is left as it came.
    """

    def __init__(self, settings: Settings, gate: Authenticator, fleet: Fleet, memory: BodyMemory) -> None:
        self._settings = settings
        self._gate = gate
        self._fleet = fleet
        self._memory = memory

    async def answer(
        self, scope: Mapping[str, Any], receive: Receive, watch: RequestTimeout
    ) -> Response | None:
        """Give the reply to a plain evaluation. None, with nothing read, where it goes the long way."""
        found = _PATH.fullmatch(scope["raw_path"])
        if found is None:
            return None
        plain = self._judge(scope, is_batch=found[2] is not None)
        if plain is None:
            return None
        watch.mark_authenticated()
        detector_id = found[1].decode()
        if not self._fleet.exists(detector_id):
            return None
        watch.operation = _SINGLE if found[2] is None else _BATCH
        message = await receive()
        if message.get("more_body", False):
            claim = self._memory.claim(plain.body_bytes, watch.end)
            body = await read_rest(message, receive, plain.body_bytes, claim)
            claim.release()
        else:
            body = part_of(message)
        watch.body_read()
        operation = (
            evaluate(body, plain.key) if found[2] is None else evaluate_batch(body, plain.key, plain.form)
        )
        return answered(await self._fleet.call(detector_id, operation))

    def _judge(self, scope: Mapping[str, Any], *, is_batch: bool) -> Plain | None:
        """Give what a request says beside its body.

        None unless the long way would let the request through, and the size of its body is known.
        """
        settings = self._settings
        if scope["method"] != "POST" or scope["http_version"] != "1.1":
            return None
        try:
            head = read_head(scope["headers"])
            sent = head.found
            if sent.keys() == _PLAIN:
                key = ""
            elif sent.keys() == _WITH_KEY:
                key = idempotency_key(head)
            else:
                return None
            if head.repeated or head.size_bytes > settings.max_header_bytes:
                return None
            if self._gate.unknown(sent[b"authorization"]) is not None:
                return None
        except Exception:  # noqa: BLE001 -- the long way meets it too, and says so
            return None
        bytes_max = settings.max_batch_body_bytes if is_batch else settings.max_body_bytes
        content_type = sent[b"content-type"]
        form = BATCH_FORMS.get(content_type) or _form(content_type)
        body_bytes = int(sent[b"content-length"])
        if form is None or body_bytes > bytes_max or not (is_batch or form == "json"):
            return None
        return Plain(key, form, body_bytes)
