"""Parses bytes into requests, without I/O: heads, and bodies of known length or chunked.

llhttp parses the header fields, with every leniency off. What it does not check is checked here: the request
line, the single Host, the single transfer coding, and the size.
"""

import itertools
import re
import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

Header = tuple[bytes, bytes]

BAD_REQUEST: Final = 400
TARGET_TOO_LONG: Final = 414
TOO_LARGE: Final = 431
_NOT_IMPLEMENTED: Final = 501
_VERSION_NOT_SUPPORTED: Final = 505

TARGET_BYTES_MAX: Final = 8 * 1024
"""The maximum length of a target: the path and the query."""
FIELDS_MAX: Final = 256
"""The maximum number of header fields. Parsing one takes as long as parsing a hundred bytes."""

_LINE_BYTES_MAX: Final = TARGET_BYTES_MAX + 256
"""A request line without an end in this many bytes has a target that is too long; no method is that long."""
_HEAD_END: Final = b"\r\n\r\n"
_BARE_HEAD_END: Final = re.compile(rb"\n\r?\n")
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)++")
_REQUEST_LINE: Final = re.compile(
    rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([!-~]+) HTTP/([0-9]\.[0-9])\r\n"  # RFC 9112, 3
)
_NONE: Final[frozenset[bytes]] = frozenset()
_FIELD_OVERHEAD_BYTES: Final = 4
_CLOSE: Final = re.compile(rb"(?:^|,)[ \t]*+close[ \t]*+(?:,|$)", re.IGNORECASE)
LINE_11: Final = b"POST / HTTP/1.1\r\n"
"""Given to llhttp instead of the request line, because it knows only some methods and forms of targets."""


REQUEST_ID: Final = b"x-request-id"
REQUEST_ID_STATE: Final = "request_id"
"""The key of the id in a request's ASGI state."""
FIELDS_STATE: Final = "fields"
"""The key of the Fields in a request's ASGI state."""

_ID: Final = re.compile(rb"[A-Za-z0-9._:/=+@-]{1,128}")
"""The ids that other services and proxies send: UUIDs, Base64, trace ids of several parts."""
_OF_THIS_PROCESS: Final = secrets.token_hex(6).encode()
_numbers: Final = itertools.count(1)


class RequestError(Exception):
    """The bytes are no request that can be served, and the connection must end. `status` says why."""

    def __init__(self, status: int) -> None:
        self.status = status


class Fields:
    """The header fields of a request, with names in lower case."""

    __slots__ = ("found", "headers", "repeated", "size_bytes")

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self.headers: list[Header] = []
        """All fields, in order."""
        self.found: dict[bytes, bytes] = {}
        """The last field of each name."""
        self.repeated: frozenset[bytes] = _NONE
        """The names that occur more than once."""
        self.size_bytes = 0
        """The size of all fields, each with a colon, a space and a line end."""
        for header in headers:
            self.on_header(*header)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a field; called by llhttp."""
        name, value = name.lower(), value.rstrip(b" \t")
        self.headers.append((name, value))
        self.size_bytes += len(name) + len(value) + _FIELD_OVERHEAD_BYTES
        if name in self.found:
            self.repeated |= {name}
        self.found[name] = value

    def only(self, name: bytes) -> bytes | None:
        """Return the value of a field that occurs exactly once; otherwise None."""
        return None if name in self.repeated else self.found.get(name)


class RequestHead(NamedTuple):
    """The head of a request."""

    method: bytes
    target: bytes
    version: bytes
    fields: Fields
    body_bytes: int | None
    """The length of the body; None if it is chunked."""
    keeps_alive: bool
    """Whether the caller may send another request on the connection."""
    expects_continue: bool


def skip_empty_lines(data: bytes | bytearray, begin: int = 0) -> int:
    """Return the end of the empty lines before a request, which servers ignore (RFC 9112, 2.2)."""
    lines = _EMPTY_LINES.match(data, begin)
    return lines.end() if lines else begin


def read_head(
    data: bytes | bytearray, bytes_max: int, begin: int = 0, searched: int = 0
) -> tuple[RequestHead, int] | None:
    """Return the head at `begin` and its length; None if it is incomplete.

    An incomplete head is searched for its end only from `searched` on, the length of the data at the last
    call. Raises RequestError if no request can begin like this, or if the head is longer than `bytes_max`.
    """
    end = data.find(_HEAD_END, max(begin, searched - len(_HEAD_END) + 1))
    size = (end + len(_HEAD_END) if end >= 0 else len(data)) - begin
    if size > bytes_max:
        raise RequestError(TARGET_TOO_LONG if _line_is_too_long(data, begin) else TOO_LARGE)
    if end < 0:
        _check_begun(data, begin, max(begin, searched))
        return None
    head = bytes(memoryview(data)[begin : begin + size])
    line = _REQUEST_LINE.match(head)
    if line is None:
        raise RequestError(BAD_REQUEST)
    method, target, version = line.groups()
    if version not in {b"1.1", b"1.0"}:
        raise RequestError(_VERSION_NOT_SUPPORTED)
    if len(target) > TARGET_BYTES_MAX:
        raise RequestError(TARGET_TOO_LONG)
    return _head(method, target, version, _header_fields(head[line.end() :])), size


def _check_begun(data: bytes | bytearray, begin: int, searched: int) -> None:
    """Raise RequestError if the data cannot be the beginning of a head."""
    begun = bytes(data[begin : begin + 2])
    begins_otherwise = begun < b"!" and begun not in {b"", b"\r"}
    if begins_otherwise or _BARE_HEAD_END.search(data, max(begin, searched - 2)):
        raise RequestError(BAD_REQUEST)
    if searched <= begin + _LINE_BYTES_MAX and _line_is_too_long(data, begin):
        raise RequestError(TARGET_TOO_LONG)


def _line_is_too_long(data: bytes | bytearray, begin: int) -> bool:
    end = begin + _LINE_BYTES_MAX
    return len(data) > end and data.find(b"\n", begin, end) < 0


def _header_fields(lines: bytes) -> Fields:
    if lines.count(b"\n") > FIELDS_MAX + 1:
        raise RequestError(TOO_LARGE)
    fields = Fields()
    try:
        HttpRequestParser(fields).feed_data(LINE_11 + lines)
    except HttpParserUpgrade:
        # It offers to continue with another protocol, which is ignored.
        pass
    except HttpParserError:
        coding = fields.found.get(b"transfer-encoding", b"chunked")
        raise RequestError(BAD_REQUEST if coding.lower() == b"chunked" else _NOT_IMPLEMENTED) from None
    return fields


def _head(method: bytes, target: bytes, version: bytes, fields: Fields) -> RequestHead:
    found = fields.found
    is_11 = version == b"1.1"
    if (is_11 and b"host" not in found) or b"host" in fields.repeated:
        raise RequestError(BAD_REQUEST)
    body_bytes: int | None = int(found.get(b"content-length", 0))
    if b"transfer-encoding" in found:
        if found[b"transfer-encoding"].lower() != b"chunked" or b"transfer-encoding" in fields.repeated:
            raise RequestError(_NOT_IMPLEMENTED)
        body_bytes = None
    return RequestHead(
        method.upper(),
        target,
        version,
        fields,
        body_bytes,
        is_11 and not (b"connection" in found and _says_close(fields.headers)),
        is_11 and found.get(b"expect", b"").lower() == b"100-continue",
    )


def _says_close(headers: list[Header]) -> bool:
    options = b",".join(value for name, value in headers if name == b"connection")
    return _CLOSE.search(options) is not None


def request_id(fields: Fields | None) -> bytes:
    """Return the id in the header fields; a new one if there is none, or more than one."""
    sent = None if fields is None else fields.only(REQUEST_ID)
    if sent is not None and _ID.fullmatch(sent):
        return sent
    return b"%b-%x" % (_OF_THIS_PROCESS, next(_numbers))


_CHUNKED_HEAD: Final = LINE_11 + b"Transfer-Encoding: chunked\r\n\r\n"
_LINE_END: Final = b"\r\n"
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]+")
_LINE_BYTES: Final = 32
"""How many bytes of a line are kept: more than the digits of any size that llhttp accepts."""


class RequestReader:
    """Reads one request after another; `head_bytes_max` limits a head, and the framing of a chunked body."""

    def __init__(self, head_bytes_max: int) -> None:
        self._data: bytes | bytearray = b""
        """The bytes that have arrived. They grow in place, so that many small pieces cost no more."""
        self._at = 0
        """The position in `_data` up to which it is parsed."""
        self._searched = 0
        """The position in `_data` up to which no end of a head was found."""
        self._head_bytes_max = head_bytes_max
        self._chunks: ChunkedBody | None = None
        self._body_left = 0

    @property
    def unread_bytes(self) -> int:
        """How many bytes have arrived and are not parsed yet."""
        return len(self._data) - self._at

    def add(self, data: bytes) -> None:
        """Add bytes that have arrived."""
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
        """Drop the unread bytes."""
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
        """Return the part of the body since the last call, and whether it is the last.

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

    llhttp parses the framing and refuses errors in it. It would read beyond the end of the body, so the sizes
    of the chunks are tracked here as well, and llhttp gets only bytes of the body.
    """

    def __init__(self, framing_bytes_max: int) -> None:
        self._framing_bytes_max = framing_bytes_max
        self._body = _Body()
        self._parser = HttpRequestParser(self._body)
        self._parser.feed_data(_CHUNKED_HEAD)
        self._framing_bytes = 0
        """How many bytes of framing have arrived since the last byte of the body."""
        self._chunk_left = 0
        """How many bytes of the chunk are missing, including its line end."""
        self._line = b""
        """The beginning of an incomplete line."""
        self._is_behind_chunks = False
        """Whether the last chunk has arrived; trailers or the end follow."""

    def read(self, data: bytes | bytearray, at: int = 0) -> tuple[bytes, int, bool]:
        """Return the part of the body in the data from `at` on, its end, and whether it is the last part.

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
            # This code and llhttp disagree about the size, which no valid body can cause.
            raise RequestError(BAD_REQUEST)
        found = b"".join(body.pieces)
        body.pieces.clear()
        return found, end, is_whole

    def _end(self, data: bytes | bytearray, at: int) -> tuple[int, bool]:
        """Return the end of the body or of the data, and whether it is the body's. Raises RequestError."""
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
