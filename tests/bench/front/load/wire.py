"""HTTP as a caller of the benchmarks reads it: no more of it than tells one response from the next."""

from typing import Final, NamedTuple

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length: "
_LINE_END: Final = b"\r\n"
_CHUNKED: Final = b"\r\ntransfer-encoding: chunked"
_TAIL_BYTES: Final = 512
_STATUS: Final = slice(9, 12)
"""Where the digits stand behind `HTTP/1.1 `."""


class Garbled(Exception):
    """What came is no response, or none that was asked for."""


class Response(NamedTuple):
    """A response whose body had a length."""

    status: int
    body: bytes


class ResponseReader:
    """Makes responses of bytes that come in pieces, where one is under way at a time."""

    __slots__ = ("_held", "_missing")

    def __init__(self) -> None:
        self._held = b""
        self._missing = 0
        """How many bytes have to come before it is worth to look again."""

    def received(self, data: bytes) -> Response | None:
        """Take what came; give the response once it is whole. Raises Garbled."""
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


class LinesReader:
    """Counts the lines of a response whose body comes in chunks.

    The chunks' frames are read past; a line may lie in several chunks, and a chunk in several pieces.
    """

    __slots__ = ("_held", "_left", "_tail", "ended", "lines", "status")

    def __init__(self) -> None:
        self._held = b""
        self._left: int | None = None
        """Bytes of the chunk under way that have not come, 0 between two chunks; None before the first."""
        self._tail = b""
        self.status = 0
        """Known once the head has come."""
        self.lines = 0
        self.ended = False

    @property
    def last(self) -> bytes:
        """The last line, as far as it is among the last bytes."""
        return self._tail.rstrip(b"\n").rpartition(b"\n")[2]

    def received(self, data: bytes) -> int:
        """Take what came, and give how many lines have ended with it. Raises Garbled."""
        before = self.lines
        held, self._held = self._held + data, b""
        while held:
            if self._left:
                taken = held[: self._left]
                self._left -= len(taken)
                held = held[len(taken) :]
                self.lines += taken.count(b"\n")
                self._tail = (self._tail + taken)[-_TAIL_BYTES:]
                continue
            rest = self._past_frame(held)
            if rest is None:
                self._held = held
                break
            held = rest
        return self.lines - before

    def _past_frame(self, held: bytes) -> bytes | None:
        """Give what stands behind the head, or behind the size of a chunk; None where that is not whole."""
        if self._left is None:
            end = held.find(_HEAD_END)
            if end < 0:
                return None
            if _CHUNKED not in held[:end].lower():
                raise Garbled(f"a response that is not in chunks: {held[:end]!r}")
            self.status = int(held[_STATUS])
            self._left = 0
            # What ends the head stands before the first size as the end of each chunk does before the next.
            return held[end + len(_LINE_END) :]
        if self.ended:
            if _LINE_END.startswith(held):
                return b"" if held == _LINE_END else None
            raise Garbled(f"more than the response: {held[:80]!r}")
        end = held.find(_LINE_END, len(_LINE_END))
        if end < 0:
            return None
        if not held.startswith(_LINE_END):
            raise Garbled(f"no end of a chunk: {held[:80]!r}")
        self._left = int(held[len(_LINE_END) : end], 16)
        self.ended = self._left == 0
        return held[end + len(_LINE_END) :]
