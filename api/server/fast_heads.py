"""Heads of evaluations as nearly all of them come: whole, and with nothing in them that asks for more."""

import re
from typing import Final, NamedTuple

_NAME: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE: Final = rb"[!-~](?:[ \t!-~]*[!-~])?"
_HEAD: Final = re.compile(
    rb"POST (/api/detectors/[0-9a-f]{32}/evaluate(?:/batch)?) HTTP/1\.1\r\n"
    rb"((?:%b:[ \t]*%b[ \t]*\r\n)++)\r\n" % (_NAME, _VALUE)
)
_HEADERS: Final = re.compile(rb"(%b):[ \t]*(%b)[ \t]*\r\n" % (_NAME, _VALUE))
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_MORE: Final = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
"""What these ask for is for h11 to do. Of the others it judges Host and Content-Length, as is done here."""


class PlainHead(NamedTuple):
    """The head of a request, and how long its body is; names of headers are in lower case."""

    as_it_came: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body_bytes: int


def read_plain(data: bytes) -> PlainHead | None:
    """Give the head with which these bytes begin, as h11 would read it; the body comes behind it.

    None where they may be anything else: h11 knows what to make of that. Of what is read here there is
    nothing that h11 would refuse, or take for another request.
    """
    head = _HEAD.match(data)
    if head is None:
        return None
    headers = [(name.lower(), value) for name, value in _HEADERS.findall(data, *head.span(2))]
    found = dict(headers)
    length = found.get(b"content-length")
    if (
        length is None
        or not _LENGTH.fullmatch(length)
        or b"host" not in found
        or (not _MORE.isdisjoint(found) and not _asks_for_nothing(found))
        or (len(found) < len(headers) and _came_twice(headers))
    ):
        return None
    return PlainHead(head[0], head[1], headers, int(length))


def _asks_for_nothing(found: dict[bytes, bytes]) -> bool:
    """Whether all that is asked for is that the connection stays, which it does."""
    return _MORE & found.keys() == {b"connection"} and found[b"connection"].lower() == b"keep-alive"


def _came_twice(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether one of those that must not has come more than once."""
    names = [name for name, _ in headers]
    return any(names.count(name) > 1 for name in (b"host", b"content-length", b"connection"))
