"""HTTP as the benchmarks' callers read it: only what separates one response from the next."""

from typing import Final, NamedTuple

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length: "
_LINE_END: Final = b"\r\n"
_STATUS: Final = slice(9, 12)
"""Where the digits stand behind `HTTP/1.1 `."""


class Garbled(Exception):
    """The data is not a response, or one without a request."""


class Response(NamedTuple):
    """A response whose body had a length."""

    status: int
    body: bytes


class ResponseReader:
    """Parses responses from bytes that come in pieces, with one response under way at a time."""

    __slots__ = ("_held", "_missing")

    def __init__(self) -> None:
        self._held = b""
        self._missing = 0
        """How many bytes must come before another look is worthwhile."""

    def received(self, data: bytes) -> Response | None:
        """Take data; return the response once it is whole. Raises Garbled."""
        held = self._held + data if self._held else data
        if len(data) < self._missing:
            self._held = held
            self._missing -= len(data)
            return None
        self._missing = 0
        end = held.find(_HEAD_END)
        if end < 0:
            self._held = held
            return None
        at = held.find(_LENGTH, 0, end)
        if at < 0:
            raise Garbled(f"a response without a length: {held[:end]!r}")
        at += len(_LENGTH)
        whole = end + len(_HEAD_END) + int(held[at : held.find(_LINE_END, at)])
        if len(held) < whole:
            self._held = held
            self._missing = whole - len(held)
            return None
        if len(held) > whole:
            raise Garbled(f"more than the response: {held[whole : whole + 80]!r}")
        self._held = b""
        return Response(int(held[_STATUS]), held[end + len(_HEAD_END) :])
