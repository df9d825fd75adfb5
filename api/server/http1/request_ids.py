"""Ids of requests: taken from `X-Request-ID`, or made, and returned with every response."""

import itertools
import re
import secrets
from collections.abc import Iterable
from typing import Final

HEADER: Final = b"x-request-id"

STATE: Final = "request_id"
"""The key of the id in a request's ASGI state."""

_ID: Final = re.compile(rb"[A-Za-z0-9._:/=+@-]{1,128}")
"""Covers what other services and proxies send: UUIDs, Base64, trace ids of several parts."""

_OF_THIS_PROCESS: Final = secrets.token_hex(6).encode()
_numbers: Final = itertools.count(1)


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id in the headers, else a new one. The names of the headers are in lower case."""
    found = None
    for name, value in headers:
        if name == HEADER:
            if found is not None:
                # Two ids identify nothing.
                return _new()
            found = value
    if found is None or not _ID.fullmatch(found):
        return _new()
    return found


def _new() -> bytes:
    return b"%b-%x" % (_OF_THIS_PROCESS, next(_numbers))
