"""The HTTP request that is being answered, and the trace of W3C that its caller has begun."""

import re
from typing import Final, NamedTuple

from api.server.requests import Fields
from engine.runtime.contract.requests.operations import CurrentRequest

HEADER: Final = b"traceparent"

_VERSION_0: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LATER: Final = re.compile(rb"(?!00|ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[!-~]*)?")
"""A later version may have more after another `-`. Version ff is forbidden."""


class TraceParent(NamedTuple):
    """The trace of a request, and the span of its caller."""

    trace_id: str
    """32 hexadecimal digits in lower case, not all 0."""
    span_id: str
    """16 of them."""
    flags: int
    """Bit 0 says that the caller records its span."""


def trace_parent(head: Fields) -> TraceParent | None:
    """Return what the headers say; None if they have no `traceparent`, two, or one that is malformed."""
    sent = head.only(HEADER)
    found = None if sent is None else _VERSION_0.fullmatch(sent) or _LATER.fullmatch(sent)
    if found is None:
        return None
    trace_id, span_id, flags = (part.decode("ascii") for part in found.groups())
    if not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceParent(trace_id, span_id, int(flags, 16))


class HttpRequest(CurrentRequest):
    """A request of a caller. Its headers are searched for a trace only when that is asked for."""

    head: Fields

    @property
    def trace_id(self) -> str:
        """The id of the trace that the caller has begun; empty if there is none."""
        parent = trace_parent(self.head)
        return "" if parent is None else parent.trace_id


class FinishedRequest(NamedTuple):
    """A request that a span tells of."""

    request: HttpRequest
    operation: str
    method: str
    path: bytes
    status: int
    code: int | None
    """The first code of its errors."""
    ended_ns: int
    """The time of the wall clock, in nanoseconds since 1970."""
    took_s: float
