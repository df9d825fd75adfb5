"""The request log: slow requests, and with the access log on, all of them."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from api.http.request.head import canonical_path
from api.observability.logs import FIELDS
from api.schema.envelope import error_code
from api.schema.operation import detector_in
from api.settings import Settings
from engine.runtime.contract.requests.operations import current_request

_log = logging.getLogger("rule_detector.requests")
# The setting `access_log` alone decides, whatever the log level.
_log.setLevel(logging.INFO)

SLOW_LINES_MAX: Final = 10
"""The maximum number of lines a second about slow requests. If all are slow, a few lines are enough."""

_CHARS_MAX: Final = 300


class RequestLog:
    """Writes a line about a finished request if it was slow, or if all requests are logged.

    Requests faster than `from_s` are never logged, so callers can skip `write` for them.
    """

    def __init__(self, settings: Settings, now_s: Callable[[], float] = time.monotonic) -> None:
        slow_s = settings.slow_request_ms / 1000 or math.inf
        self.from_s = 0.0 if settings.access_log else slow_s
        self._slow_s = slow_s
        self._all = settings.access_log
        self._now_s = now_s
        self._since_s = -math.inf
        self._lines = 0
        self._left_out = 0

    def write(
        self,
        scope: Mapping[str, Any],
        operation: str,
        status: int,
        elapsed_s: float,
        *,
        body: bytes = b"",
        may_be_slow: bool = True,
    ) -> None:
        """Log the current request if required. `body` is the beginning of its response."""
        is_slow = may_be_slow and elapsed_s >= self._slow_s
        if not self._all and not (is_slow and self._take_line()):
            return
        level = logging.WARNING if is_slow else logging.INFO
        request = current_request()
        fields = {
            "request": request.id,
            "trace": request.trace_id,
            "token": request.token_id or None,
            "method": scope["method"][:20],
            "path": _path(scope),
            "operation": operation,
            "detector": detector_in(scope["raw_path"]),
            "status": status,
            "code": error_code(body),
            "took_ms": _ms(elapsed_s),
            "queued_ms": _ms(request.queued_s),
            "evaluated_ms": _ms(request.evaluated_s),
            "synced_ms": _ms(request.synced_s),
            "client": _client(scope),
            "agent": _agent(scope["headers"]),
            "left_out": self._left_out or None,
        }
        self._left_out = 0
        _log.log(level, "a slow request" if is_slow else "a request", extra={FIELDS: fields})

    def _take_line(self) -> bool:
        """Take one of this second's lines about slow requests; return whether one was left."""
        now_s = self._now_s()
        if now_s - self._since_s >= 1:
            self._since_s = now_s
            self._lines = 0
        self._lines += 1
        if self._lines > SLOW_LINES_MAX:
            self._left_out += 1
        return self._lines <= SLOW_LINES_MAX


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def _path(scope: Mapping[str, Any]) -> str:
    # The query is left out, because a caller may have put a secret in it.
    return canonical_path(scope["raw_path"][: 4 * _CHARS_MAX])[:_CHARS_MAX]


def _client(scope: Mapping[str, Any]) -> str | None:
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client and len(client) > 1 else None


def _agent(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    for name, value in headers:
        if name == b"user-agent":
            return value[:_CHARS_MAX].decode("latin-1")
    return None
