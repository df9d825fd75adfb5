"""The heads of responses, made once a second where they are equal, and the server's own responses."""

import logging
import secrets
import time
from collections.abc import Iterable
from email.utils import formatdate
from typing import Final

from api.schema.envelope import Headers, Response, failure
from api.server.http1.request_head import FIELDS_MAX, REQUEST_ID, TARGET_BYTES_MAX
from engine.language.diagnostics import Entry

_log = logging.getLogger("rule_detector.api")

CLOSE: Final = (b"connection", b"close")

_MEANINGS: Final = {
    400: "the request is not HTTP/1.1 by its grammar",
    414: f"the target of the request, its path and query, is longer than {TARGET_BYTES_MAX} bytes",
    431: "the head of the request, or a line of its body's framing, is too large; "
    f"a head has at most {FIELDS_MAX} fields",
    501: "Transfer-Encoding: only `chunked` is supported",
    505: "only HTTP/1.1 is supported",
}


class ResponseHeads:
    """Heads of whole responses: status, headers, length of the body, and date."""

    def __init__(self) -> None:
        self._second = 0
        self._date = b""
        self._made: dict[tuple[int, Headers, int], bytes] = {}

    def date(self) -> bytes:
        """Return the time for the header `Date`."""
        now_s = int(time.time())
        if now_s != self._second:
            self._second = now_s
            self._date = formatdate(now_s, usegmt=True).encode()
            self._made.clear()
        return self._date

    def whole(self, status: int, headers: Headers, body_bytes: int, request_id: bytes) -> bytes:
        """Return the head of a response with a body of `body_bytes`."""
        date = self.date()
        which = status, headers, body_bytes
        made = self._made.get(which)
        if made is None:
            length = (b"content-length", b"%d" % body_bytes)
            made = self._made[which] = _lines(status, [*headers, length, (b"date", date)])
        return b"%b%b: %b\r\n\r\n" % (made, REQUEST_ID, request_id)

    def started(self, status: int, headers: Iterable[tuple[bytes, bytes]], request_id: bytes) -> bytes:
        """Return the head of a response whose headers say where its body ends."""
        return _lines(status, [*headers, (b"date", self.date()), (REQUEST_ID, request_id)]) + b"\r\n"


def _lines(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    if not lines.count(b"\r") == lines.count(b"\n") == len(headers):
        # The text after it would be read as another header or response, made by whoever gave the value.
        raise ValueError("a header of the response has a line break")
    return b"HTTP/1.1 %d \r\n%b" % (status, lines)


HEADS: Final = ResponseHeads()


def server_error(status: int) -> Response:
    """Return the response, after which the connection ends.

    Whatever cannot be read as a request has the code 1006 and its status 400, even where HTTP has 414, 431
    or 501. Only another version of HTTP keeps its status, 505.
    """
    if status not in _MEANINGS:
        reference = secrets.token_hex(6)
        _log.error("internal error %s: the application ended without an answer", reference)
        entry = Entry(1500, f"an internal error; its reference is {reference}")
        return failure(500, [entry]).closing()
    return failure(505 if status == 505 else 400, [Entry(1006, _MEANINGS[status])]).closing()  # noqa: PLR2004
