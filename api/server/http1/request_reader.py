"""From bytes to requests, without I/O: heads, and bodies of known length or chunked."""

import re
from typing import Final

from httptools import HttpParserError, HttpRequestParser

from api.server.http1.request_head import (
    BAD_REQUEST,
    LINE_11,
    TOO_LARGE,
    RequestError,
    RequestHead,
    read_head,
    skip_empty_lines,
)

_CHUNKED_HEAD: Final = LINE_11 + b"Transfer-Encoding: chunked\r\n\r\n"
_LINE_END: Final = b"\r\n"
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]+")
_LINE_BYTES: Final = 32
"""How much is kept of a line: more than the digits of any size that llhttp reads."""


class RequestReader:
    """Reads one request after another; `head_bytes_max` limits a head, and the framing of a chunked body."""

    def __init__(self, head_bytes_max: int) -> None:
        self._data: bytes | bytearray = b""
        """What has arrived. It grows in place, so that pieces of any size cost no more than their bytes."""
        self._at = 0
        """The position in `_data` up to which it is read."""
        self._searched = 0
        """The position in `_data` up to which there is no end of a head."""
        self._head_bytes_max = head_bytes_max
        self._chunks: ChunkedBody | None = None
        self._body_left = 0

    @property
    def unread_bytes(self) -> int:
        """How many bytes have arrived and are not read yet."""
        return len(self._data) - self._at

    def add(self, data: bytes) -> None:
        """Take what has arrived."""
        if not self.unread_bytes:
            self._data = data
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        if 2 * self._at > len(self._data):
            del self._data[: self._at]
            self._searched = max(0, self._searched - self._at)
            self._at = 0
        self._data += data

    def drop(self) -> None:
        """Drop what was not read."""
        self._data = b""
        self._at = self._searched = 0

    def _read_to(self, end: int) -> None:
        self._at = end
        if end == len(self._data):
            self.drop()

    def read_head(self) -> RequestHead | None:
        """Return the head of the next request; None if it is incomplete. Raises RequestError."""
        self._read_to(skip_empty_lines(self._data, self._at))
        found = read_head(self._data, self._head_bytes_max, self._at, self._searched)
        if found is None:
            self._searched = len(self._data)
            return None
        head, size = found
        self._read_to(self._at + size)
        self._chunks = ChunkedBody(self._head_bytes_max) if head.body_bytes is None else None
        self._body_left = head.body_bytes or 0
        return head

    def read_body(self) -> tuple[bytes, bool]:
        """Return what has arrived of the body since the last call, and whether that is its end.

        Raises RequestError.
        """
        if self._chunks is not None:
            body, end, is_whole = self._chunks.read(self._data, self._at)
        else:
            end = min(self._at + self._body_left, len(self._data))
            piece = self._data[self._at : end]
            body = bytes(piece)
            self._body_left -= len(body)
            is_whole = not self._body_left
        self._read_to(end)
        return body, is_whole


class _Body:
    """The pieces of a body that llhttp finds in the chunks."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_whole = False

    def on_body(self, piece: bytes) -> None:
        """Keep a piece."""
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        """Record the end."""
        self.is_whole = True


class ChunkedBody:
    """A chunked body, with at most `framing_bytes_max` bytes of framing in a row.

    llhttp reads the framing and refuses what is wrong with it. It would read past the end of the body, so the
    sizes of the chunks are followed here as well, and it gets no more than belongs to the body.
    """

    def __init__(self, framing_bytes_max: int) -> None:
        self._framing_bytes_max = framing_bytes_max
        self._body = _Body()
        self._parser = HttpRequestParser(self._body)
        self._parser.feed_data(_CHUNKED_HEAD)
        self._framing_bytes = 0
        """How many bytes of framing have come since the last byte of the body."""
        self._chunk_left = 0
        """How much of the chunk is still to come, with the end of its line."""
        self._line = b""
        """The beginning of a line that is incomplete."""
        self._is_behind_chunks = False
        """Whether the last chunk has come, and trailers or the end follow."""

    def read(self, data: bytes | bytearray, at: int = 0) -> tuple[bytes, int, bool]:
        """Return the part of the body in the data from `at` on, where it ends, and whether it is the last.

        Raises RequestError if a chunked body cannot continue like this.
        """
        body = self._body
        end, is_whole = self._end(data, at)
        with memoryview(data) as view:
            try:
                self._parser.feed_data(view[at:end])
            except HttpParserError:
                raise RequestError(BAD_REQUEST) from None
        if body.is_whole != is_whole:
            # The two have read different sizes, which no valid body can cause.
            raise RequestError(BAD_REQUEST)
        found = b"".join(body.pieces)
        body.pieces.clear()
        return found, end, is_whole

    def _end(self, data: bytes | bytearray, at: int) -> tuple[int, bool]:
        """Return where the body ends, or the data; whether it is the body. Raises RequestError."""
        while at < len(data):
            if self._chunk_left > len(_LINE_END):
                taken = min(self._chunk_left - len(_LINE_END), len(data) - at)
                self._chunk_left -= taken
                at += taken
                self._framing_bytes = 0
                continue
            if self._chunk_left:
                taken = min(self._chunk_left, len(data) - at)
                self._chunk_left -= taken
                at += taken
                self._frame(taken)
                continue
            end = data.find(b"\n", at) + 1
            line = self._line + data[at : min(end or len(data), at + _LINE_BYTES)]
            self._frame((end or len(data)) - at)
            if not end:
                self._line = line[:_LINE_BYTES]
                break
            at = end
            self._line = b""
            if self._is_behind_chunks:
                if line == _LINE_END:
                    return at, True
                continue
            size = _CHUNK_SIZE.match(line)
            # llhttp refuses a line without a size.
            self._chunk_left = int(size[0], 16) + len(_LINE_END) if size else 0
            self._is_behind_chunks = self._chunk_left == len(_LINE_END)
            if self._is_behind_chunks:
                self._chunk_left = 0
        return len(data), False

    def _frame(self, bytes_: int) -> None:
        self._framing_bytes += bytes_
        if self._framing_bytes > self._framing_bytes_max:
            raise RequestError(TOO_LARGE)
