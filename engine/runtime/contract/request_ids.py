"""The id of the request that is being served, for the log of whatever is done for it."""

from contextvars import ContextVar
from typing import Final

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Empty where nothing is done for one request alone."""
