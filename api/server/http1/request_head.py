"""The head of a request: its line, its header fields, its id, and the length of its body.

llhttp reads the fields, with every leniency off. What it leaves to its user is checked here: the request
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
"""The longest target, which is the path and the query."""
FIELDS_MAX: Final = 256
"""The most header fields. Reading one takes as long as reading a hundred bytes."""

_LINE_BYTES_MAX: Final = TARGET_BYTES_MAX + 256
"""The bytes after which a request line has ended, or its target is too long; no method is that long."""
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
"""Replaces the request line for llhttp, which knows only some methods and forms of targets."""


REQUEST_ID: Final = b"x-request-id"
REQUEST_ID_STATE: Final = "request_id"
"""The key of the id in a request's ASGI state."""
FIELDS_STATE: Final = "fields"
"""The key of the Fields in a request's ASGI state."""

_ID: Final = re.compile(rb"[A-Za-z0-9._:/=+@-]{1,128}")
"""Covers what other services and proxies send: UUIDs, Base64, trace ids of several parts."""
_OF_THIS_PROCESS: Final = secrets.token_hex(6).encode()
_numbers: Final = itertools.count(1)


class RequestError(Exception):
    """The bytes are not a request that can be served, and the connection has to end. `status` says why."""

    def __init__(self, status: int) -> None:
        self.status = status


class Fields:
    """The header fields of a request, whose names are in lower case. Each is read once, here."""

    __slots__ = ("found", "headers", "repeated", "size_bytes")

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self.headers: list[Header] = []
        """All, in order."""
        self.found: dict[bytes, bytes] = {}
        """The last of each name."""
        self.repeated: frozenset[bytes] = _NONE
        """The names that came more than once."""
        self.size_bytes = 0
        """The size of all, each with a colon, a blank and a line end."""
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
        """Return the value of a field that came exactly once; None of any other."""
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
    """Return where the empty lines before a request end, which servers ignore (RFC 9112, 2.2)."""
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
    """Raise RequestError if no head can continue the data."""
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
        # An offer to continue with another protocol, which is ignored.
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
    """Return the id in the header fields, else a new one. Two ids identify nothing."""
    sent = None if fields is None else fields.only(REQUEST_ID)
    if sent is not None and _ID.fullmatch(sent):
        return sent
    return b"%b-%x" % (_OF_THIS_PROCESS, next(_numbers))
