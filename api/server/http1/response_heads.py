"""The heads of responses as bytes. Equal heads are built only once a second."""

import time
from collections.abc import Iterable
from email.utils import formatdate
from typing import Final

from api.schema.envelope import Headers
from api.server.http1.request_ids import HEADER

CLOSE: Final = (b"connection", b"close")


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
        return b"%b%b: %b\r\n\r\n" % (made, HEADER, request_id)

    def started(self, status: int, headers: Iterable[tuple[bytes, bytes]], request_id: bytes) -> bytes:
        """Return the head of a response whose headers say where its body ends."""
        return _lines(status, [*headers, (b"date", self.date()), (HEADER, request_id)]) + b"\r\n"


def _lines(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    if not lines.count(b"\r") == lines.count(b"\n") == len(headers):
        # The text after it would be read as another header or response, made by whoever gave the value.
        raise ValueError("a header of the response has a line break")
    return b"HTTP/1.1 %d \r\n%b" % (status, lines)


HEADS: Final = ResponseHeads()
