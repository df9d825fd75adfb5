"""The HTTP request that is being answered: its ids, for log records, and where its time went."""

from contextvars import ContextVar
from typing import Final


class CurrentRequest:
    """A request of a caller. Times are in seconds; None is not known, as where no detector was called."""

    # Attributes of the class, which makes creating a request cheaper.
    queued_s: float | None = None
    """How long its calls to detectors waited until they were begun."""
    evaluated_s: float | None = None
    """How long the batches took in which they were executed, without the sync."""
    synced_s: float | None = None
    """How long it took to make these batches durable."""

    token_id: str = ""
    """The id of the caller's token, once it is known."""

    def __init__(self, id_: str = "") -> None:
        self.id = id_

    @property
    def trace_id(self) -> str:
        """The id of the trace that the caller has begun; empty if there is none."""
        return ""

    @property
    def fields(self) -> dict[str, str]:
        """The ids as fields of a log record; those that are empty are left out."""
        ids = {"request": self.id, "trace": self.trace_id}
        return {name: value for name, value in ids.items() if value}

    def add(self, queued_s: float, evaluated_s: float | None, synced_s: float | None) -> None:
        """Add the times of a call to a detector."""
        self.queued_s = (self.queued_s or 0.0) + queued_s
        if evaluated_s is not None:
            self.evaluated_s = (self.evaluated_s or 0.0) + evaluated_s
        if synced_s is not None:
            self.synced_s = (self.synced_s or 0.0) + synced_s


_CURRENT: Final[ContextVar[CurrentRequest | None]] = ContextVar("current_request", default=None)


def begin_request(request: CurrentRequest) -> None:
    """Make it the current request of this task, and of those that it starts."""
    _CURRENT.set(request)


def current_request() -> CurrentRequest:
    """Return the current request; outside of any, one without an id."""
    return _CURRENT.get() or CurrentRequest()
