"""The HTTP request that is being answered, with the trace that its caller has begun."""

from collections.abc import Sequence

from api.observability.tracing.trace_parent import trace_parent
from engine.runtime.contract.requests.current_request import CurrentRequest


class HttpRequest(CurrentRequest):
    """A request of a caller. Its headers are searched for a trace only when that is asked for."""

    def __init__(self, id_: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The names of the headers are in lower case."""
        super().__init__(id_)
        self.headers = headers

    @property
    def trace_id(self) -> str:
        """The id of the trace that the caller has begun; empty if there is none."""
        parent = trace_parent(self.headers)
        return "" if parent is None else parent.trace_id
