"""Whether and where spans of requests are sent."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from api.observability.tracing.http_request import HttpRequest
from api.observability.tracing.span_queue import FinishedRequest, Sender, SpanQueue
from api.schema.operation import Operation
from api.settings import Settings
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.requests.operations import current_request

_CLOSE_S: Final = 1.0
"""How long the end of a front end waits for a collector."""


class Tracing:
    """Has a span sent of each request that it is told of."""

    def __init__(self, endpoint: str, operations: Sequence[Operation]) -> None:
        self._queue = SpanQueue(partial(_otlp_sender, endpoint, operations))

    def note(
        self, scope: Mapping[str, Any], operation: str, status: int, code: int | None, took_s: float
    ) -> None:
        """Take note that the current request is answered."""
        request = current_request()
        assert isinstance(request, HttpRequest), "it came over HTTP"
        method, path = scope["method"], scope["raw_path"]
        ended_ns = time.time_ns()
        self._queue.put(FinishedRequest(request, operation, method, path, status, code, ended_ns, took_s))

    def take_counts(self) -> Counter[str]:
        """Return what became of spans since the last call, by outcome: SPANS of the metrics."""
        return self._queue.take_counts()

    async def close(self) -> None:
        """Send the last spans, as far as the collector takes them at once."""
        await off_loop(partial(self._queue.close, _CLOSE_S), "last spans")


def tracing_for(settings: Settings, operations: Sequence[Operation]) -> Tracing | None:
    """Return what sends spans; None if none are to be sent."""
    return None if settings.otlp_endpoint is None else Tracing(settings.otlp_endpoint, operations)


def _otlp_sender(endpoint: str, operations: Sequence[Operation]) -> Sender:
    # Nobody else needs these packages, and not everybody has them.
    from api.observability.tracing.otlp import OtlpSender  # noqa: PLC0415

    return OtlpSender(endpoint, operations)
