"""Traces: the ids that callers send, and the thread that sends a span of each finished request."""

import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from api.observability.request_metrics import SPANS_LOST, SPANS_QUEUE_FULL, SPANS_SENT
from api.server.requests import Fields
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.requests.operations import CurrentRequest, current_request

HEADER: Final = b"traceparent"

_VERSION_0: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LATER: Final = re.compile(rb"(?!00|ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[!-~]*)?")
"""Later versions may append further parts with `-`. Version ff is forbidden."""
QUEUED_MAX: Final = 4096
"""The maximum number of waiting spans; an unreachable collector must cost neither time nor much memory."""
TOGETHER_MAX: Final = 128
"""The number of spans encoded together, which takes some milliseconds without serving requests."""
_EVERY_S: Final = 1.0
_CLOSE_S: Final = 1.0
"""How long an ending front end waits for the collector."""


class TraceParent(NamedTuple):
    """The trace of a request, and the span of its caller."""

    trace_id: str
    """32 hexadecimal digits in lower case, not all 0."""
    span_id: str
    """16 hexadecimal digits in lower case, not all 0."""
    flags: int
    """Bit 0 means that the caller records its span."""


def trace_parent(head: Fields) -> TraceParent | None:
    """Return the trace in the headers; None if `traceparent` is missing, repeated or malformed."""
    sent = head.only(HEADER)
    found = None if sent is None else _VERSION_0.fullmatch(sent) or _LATER.fullmatch(sent)
    if found is None:
        return None
    trace_id, span_id, flags = (part.decode("ascii") for part in found.groups())
    if not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceParent(trace_id, span_id, int(flags, 16))


class HttpRequest(CurrentRequest):
    """A caller's request. Its headers are searched for a trace only on demand."""

    head: Fields

    @property
    def trace_id(self) -> str:
        """The id of the caller's trace; empty if there is none."""
        parent = trace_parent(self.head)
        return "" if parent is None else parent.trace_id


class FinishedRequest(NamedTuple):
    """A finished request, of which a span is made."""

    request: HttpRequest
    operation: str
    method: str
    path: bytes
    status: int
    code: int | None
    """The first code of its errors."""
    ended_ns: int
    """The end by the wall clock, in nanoseconds since 1970."""
    took_s: float


_log = logging.getLogger(__name__)


class Sender(Protocol):
    """Sends spans to a collector. May block until the collector answers."""

    def send(self, finished: Sequence[FinishedRequest]) -> tuple[int, bool]:
        """Return how many of the requests have spans, and whether the collector has taken all spans."""

    def close(self) -> None:
        """Make `send` return soon. Called from another thread."""


class Tracing:
    """Takes finished requests without ever waiting; a thread sends their spans."""

    def __init__(self, make: Callable[[], Sender]) -> None:
        """`make` is called in the thread: importing the packages takes a while."""
        self._make = make
        self._sender: Sender | None = None
        self._waiting: deque[FinishedRequest] = deque()
        self._stir = threading.Event()
        self._closing = False
        self._full = 0
        self._told: Counter[str] = Counter()
        self._outcomes = Counter({SPANS_SENT: 0, SPANS_LOST: 0})
        """The outcomes of spans that were taken from the queue. Only the thread changes it."""
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def note(
        self, scope: Mapping[str, Any], operation: str, status: int, code: int | None, took_s: float
    ) -> None:
        """Note that the current request is answered, and queue its span."""
        request = current_request()
        assert isinstance(request, HttpRequest), "it came over HTTP"
        method, path = scope["method"], scope["raw_path"]
        self.put(FinishedRequest(request, operation, method, path, status, code, time.time_ns(), took_s))

    def put(self, finished: FinishedRequest) -> None:
        """Queue the span of a request, unless too many wait."""
        waiting = len(self._waiting)
        if waiting >= QUEUED_MAX:
            self._full += 1
            return
        self._waiting.append(finished)
        if waiting >= TOGETHER_MAX and not self._stir.is_set():
            self._stir.set()

    def take_counts(self) -> Counter[str]:
        """Return the outcomes of spans since the last call."""
        total = self._outcomes + Counter({SPANS_QUEUE_FULL: self._full})
        taken, self._told = total - self._told, total
        if taken[SPANS_QUEUE_FULL]:
            _log.warning("%d spans were dropped: %d others wait", taken[SPANS_QUEUE_FULL], len(self._waiting))
        return taken

    async def close(self, within_s: float = _CLOSE_S) -> None:
        """Send waiting spans, as far as the collector takes them within this time."""
        await off_loop(partial(self._end, within_s), "last spans")

    def _end(self, within_s: float) -> None:
        self._closing = True
        self._stir.set()
        self._thread.join(within_s)
        if self._thread.is_alive() and self._sender is not None:
            self._sender.close()

    def _run(self) -> None:
        self._sender = self._make()
        closing = False
        while not closing:
            self._stir.wait(_EVERY_S)
            self._stir.clear()
            closing = self._closing
            while self._waiting:
                self._send(self._sender)

    def _send(self, sender: Sender) -> None:
        together = min(len(self._waiting), TOGETHER_MAX)
        try:
            spans, taken = sender.send([self._waiting.popleft() for _ in range(together)])
        except Exception:  # noqa: BLE001 -- the next spans may do
            _log.exception("spans could not be made")
            spans, taken = together, False
        self._outcomes[SPANS_SENT if taken else SPANS_LOST] += spans
        if not taken:
            _log.warning("the collector has not taken %d spans", spans)
