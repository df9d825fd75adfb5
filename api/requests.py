"""Requests as they come in: their headers read once, and their paths without surprises."""

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from api.envelope import RequestRefusal

_JSON: Final = b"application/json"


class Head:
    """The headers of a request that matter here. A header sent twice that may be sent only once is `repeated`."""

    __slots__ = ("_framed_twice", "_has_length", "authorization", "bytes", "content_encoding", "content_length", "content_type", "repeated")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.authorization: bytes | None = None
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.content_length: int | None = None
        self.repeated: bytes | None = None
        chunked = False
        size = 0
        for name, value in headers:
            # A colon, a blank and a line's end go with each.
            size += len(name) + len(value) + 4
            match name:
                case b"authorization":
                    self.repeated = self.repeated or (name if self.authorization is not None else None)
                    self.authorization = value
                case b"content-type":
                    self.repeated = self.repeated or (name if self.content_type is not None else None)
                    self.content_type = value
                case b"content-length":
                    self.content_length = int(value)
                case b"transfer-encoding":
                    chunked = True
                case b"content-encoding":
                    self.content_encoding = value
        self.bytes = size
        self._framed_twice = chunked and self.content_length is not None
