"""The id of the current request, for its log lines."""

from contextvars import ContextVar
from typing import Final

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Empty outside a request."""
