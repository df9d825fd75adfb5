"""The heads of replies, made once for all that are alike within a second."""

import time
from email.utils import formatdate
from typing import Final

import h11

from api.schema.envelope import Headers
from api.server.request_ids import HEADER


class Heads:
    """Heads of replies: their status, these headers, the length of the body, and the date."""

    def __init__(self) -> None:
        self._second = 0
        self._made: dict[tuple[int, Headers, int], tuple[h11.Response, bytes]] = {}

    def of(self, status: int, headers: Headers, body_bytes: int) -> h11.Response:
        """Give a head for h11 to send."""
        return self._head(status, headers, body_bytes)[0]

    def bytes_of(self, status: int, headers: Headers, body_bytes: int) -> bytes:
        """Give a head as it is sent, and as h11 sends it."""
        return self._head(status, headers, body_bytes)[1]

    def _head(self, status: int, headers: Headers, body_bytes: int) -> tuple[h11.Response, bytes]:
        now_s = int(time.time())
        if now_s != self._second:
            self._second = now_s
            self._made.clear()
        which = status, headers, body_bytes
        made = self._made.get(which)
        if made is None:
            date = formatdate(now_s, usegmt=True).encode()
            said = [*headers, (b"content-length", b"%d" % body_bytes), (b"date", date)]
            lines = b"".join(b"%b: %b\r\n" % header for header in said)
            response = h11.Response(status_code=status, headers=said)
            made = self._made[which] = response, b"HTTP/1.1 %d \r\n%b\r\n" % (status, lines)
        return made


def with_request_id(head: bytes, request_id: bytes) -> bytes:
    """Give a head that also bears the id of its request, which no two have alike."""
    return b"%b%b: %b\r\n\r\n" % (head[:-2], HEADER, request_id)


HEADS: Final = Heads()
