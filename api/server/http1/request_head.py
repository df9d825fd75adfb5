"""The head of a request: its line, its header fields, and the length of its body.

llhttp reads the fields, with every leniency off. What it leaves to its user is checked here: the request
line, the single Host, the single transfer coding, and the size.
"""

import re
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

Header = tuple[bytes, bytes]

BAD_REQUEST: Final = 400
TOO_LARGE: Final = 431
_NOT_IMPLEMENTED: Final = 501
_VERSION_NOT_SUPPORTED: Final = 505

_HEAD_END: Final = b"\r\n\r\n"
_BARE_HEAD_END: Final = re.compile(rb"\n\r?\n")
_EMPTY_LINES: Final = re.compile(rb"(?:\r\n)++")
_REQUEST_LINE: Final = re.compile(
    rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([!-~]+) HTTP/([0-9]\.[0-9])\r\n"  # RFC 9112, 3
)
LINE_11: Final = b"POST / HTTP/1.1\r\n"
"""Replaces the request line for llhttp, which knows only some methods and forms of targets."""


class RequestError(Exception):
    """The bytes are not a request that can be served, and the connection has to end. `status` says why."""

    def __init__(self, status: int) -> None:
        self.status = status


class RequestHead(NamedTuple):
    """The head of a request; names of headers are in lower case."""

    method: bytes
    target: bytes
    version: bytes
    headers: list[Header]
    body_bytes: int | None
    """The length of the body; None if it is chunked."""
    keeps_alive: bool
    """Whether the caller may send another request on the connection."""
    expects_continue: bool


class _Fields:
    """The header fields that llhttp finds."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: list[Header] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field."""
        self.headers.append((name.lower(), value.rstrip(b" \t")))


def skip_empty_lines(data: bytes) -> bytes:
    """Return the data without empty lines before a request, which servers ignore (RFC 9112, 2.2)."""
    lines = _EMPTY_LINES.match(data)
    return data[lines.end() :] if lines else data


def read_head(data: bytes, bytes_max: int) -> tuple[RequestHead, int] | None:
    """Return the head at the beginning of the data and its length; None if it is incomplete.

    Raises RequestError if no request can begin like this, or if the head is longer than `bytes_max`.
    """
    end = data.find(_HEAD_END)
    size = end + len(_HEAD_END) if end >= 0 else len(data)
    if size > bytes_max:
        raise RequestError(TOO_LARGE)
    if end < 0:
        begins_otherwise = data < b"!" and data not in {b"", b"\r"}
        if begins_otherwise or _BARE_HEAD_END.search(data):
            raise RequestError(BAD_REQUEST)
        return None
    line = _REQUEST_LINE.match(data)
    if line is None:
        raise RequestError(BAD_REQUEST)
    method, target, version = line.groups()
    if version not in {b"1.1", b"1.0"}:
        raise RequestError(_VERSION_NOT_SUPPORTED)
    return _head(method, target, version, _header_fields(data[line.end() : size])), size


def _header_fields(lines: bytes) -> list[Header]:
    fields = _Fields()
    try:
        HttpRequestParser(fields).feed_data(LINE_11 + lines)
    except HttpParserUpgrade:
        # An offer to continue with another protocol, which is ignored.
        pass
    except HttpParserError:
        coding = dict(fields.headers).get(b"transfer-encoding", b"chunked")
        raise RequestError(BAD_REQUEST if coding.lower() == b"chunked" else _NOT_IMPLEMENTED) from None
    return fields.headers


def _head(method: bytes, target: bytes, version: bytes, headers: list[Header]) -> RequestHead:
    found = dict(headers)
    is_11 = version == b"1.1"
    if b"host" not in found:
        if is_11:
            raise RequestError(BAD_REQUEST)
    elif len(found) < len(headers) and _count(headers, b"host") > 1:
        raise RequestError(BAD_REQUEST)
    body_bytes: int | None = int(found.get(b"content-length", 0))
    if b"transfer-encoding" in found:
        if found[b"transfer-encoding"].lower() != b"chunked" or _count(headers, b"transfer-encoding") > 1:
            raise RequestError(_NOT_IMPLEMENTED)
        body_bytes = None
    return RequestHead(
        method.upper(),
        target,
        version,
        headers,
        body_bytes,
        is_11 and not (b"connection" in found and _says_close(headers)),
        is_11 and found.get(b"expect", b"").lower() == b"100-continue",
    )


def _count(headers: list[Header], wanted: bytes) -> int:
    return sum(name == wanted for name, _ in headers)


def _says_close(headers: list[Header]) -> bool:
    options = b",".join(value for name, value in headers if name == b"connection")
    return any(option.strip().lower() == b"close" for option in options.split(b","))
