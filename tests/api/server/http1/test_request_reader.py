"""From bytes to requests: heads, what they mean, and bodies, wherever the bytes are cut."""

from typing import Any

import pytest

from api.server.requests import ChunkedBody, RequestError, RequestReader, read_head

HOST = b"Host: a"
CHUNKED = b"Transfer-Encoding: chunked"


def head_of(*fields: bytes, line: bytes = b"POST /a HTTP/1.1") -> bytes:
    return b"\r\n".join((line, *fields)) + b"\r\n\r\n"


@pytest.mark.parametrize("data", [b"", b"\r", b"G", b"!", head_of(HOST)[:-2], b"GET / HTTP/9.9"])
def test_a_head_may_still_come_whole(data: bytes) -> None:
    assert read_head(data, 1_000) is None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b" GET", 400),
        (b"\n", 400),
        (b"\rG", 400),
        (b"\r\n\r\n" + b"x" * 2_000, 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET /\r\n\r\n", 400),
        (head_of(), 400),
        (head_of(HOST, b"Host: b"), 400),
        (head_of(HOST, b"X: \x00"), 400),
        (head_of(HOST, b"Content-Length: x"), 400),
        (head_of(HOST, b"Content-Length: 7", CHUNKED), 400),
        (head_of(HOST, CHUNKED, b"Content-Length: 7"), 400),
        (head_of(HOST, CHUNKED, CHUNKED), 400),
        (head_of(HOST, CHUNKED, b"X: \x00"), 400),
        (head_of(HOST, b"Transfer-Encoding: Chunked", b"Content-Length: 7"), 400),
        (head_of(HOST, b"Transfer-Encoding: gzip"), 501),
        (head_of(HOST, b"Transfer-Encoding: gzip, chunked"), 501),
        (head_of(HOST, line=b"GET / HTTP/2.0"), 505),
        (head_of(HOST, b"X: " + b"y" * 1_000), 431),
        (b"GET /" + b"y" * 1_000, 431),
    ],
)
def test_what_cannot_be_served_has_its_status(data: bytes, status: int) -> None:
    with pytest.raises(RequestError) as caught:
        read_head(data, 1_000)
    assert (caught.value.status, caught.value.args) == (status, (status,))


def test_the_size_of_a_head_is_bounded_to_the_byte() -> None:
    data = head_of(HOST)
    found = read_head(data + b"body", len(data))
    assert found is not None
    assert found[1] == len(data)
    for begun in (data, data[:-1]):
        with pytest.raises(RequestError):
            read_head(begun, len(begun) - 1)
    assert read_head(data[:-1], len(data) - 1) is None


@pytest.mark.parametrize(
    ("fields", "line", "keeps_alive", "expects_continue"),
    [
        ((HOST,), b"POST / HTTP/1.1", True, False),
        ((HOST, b"Connection: keep-alive"), b"POST / HTTP/1.1", True, False),
        ((HOST, b"Connection: close"), b"POST / HTTP/1.1", False, False),
        ((HOST, b"Connection: keep-alive, Close "), b"POST / HTTP/1.1", False, False),
        ((HOST, b"Connection: close", b"X: keep-alive"), b"POST / HTTP/1.1", False, False),
        ((HOST, b"Connection: keep-alive", b"Connection: close"), b"POST / HTTP/1.1", False, False),
        ((HOST, b"Connection: keep-alive", b"X: close"), b"POST / HTTP/1.1", True, False),
        ((HOST, b"Connection: a,\tclose\t,b"), b"POST / HTTP/1.1", False, False),
        ((HOST, b"Connection: closed, close-not, not close"), b"POST / HTTP/1.1", True, False),
        ((HOST, b"X: 1", b"X: 2"), b"POST / HTTP/1.1", True, False),
        ((HOST, b"Expect: 100-Continue"), b"POST / HTTP/1.1", True, True),
        ((HOST, b"Expect: 200"), b"POST / HTTP/1.1", True, False),
        ((), b"POST / HTTP/1.0", False, False),
        ((b"Expect: 100-continue", b"Connection: keep-alive"), b"POST / HTTP/1.0", False, False),
    ],
)
def test_a_head_says_what_the_caller_expects_of_the_connection(
    fields: tuple[bytes, ...], line: bytes, keeps_alive: bool, expects_continue: bool
) -> None:
    found = read_head(head_of(*fields, line=line), 1_000)
    assert found is not None
    assert (found[0].keeps_alive, found[0].expects_continue) == (keeps_alive, expects_continue)


BODY = b"{}"
CHUNKS = b"1\r\n{\r\n1;a=b\r\n}\r\n0\r\nX: y\r\n\r\n"
EMPTY_LINES_IN_IT = b"6\r\n\n\r\n\n\r\n\r\n0\r\n\r\n"
SENT = [
    (head_of(HOST, b"Content-Length: 2") + BODY, BODY),
    (b"\r\n\r\n" + head_of(HOST, CHUNKED) + CHUNKS, BODY),
    (head_of(HOST, CHUNKED) + EMPTY_LINES_IN_IT, b"\n\r\n\n\r\n"),
    (head_of(HOST), b""),
    (b"\r\n" + head_of(HOST, b"Content-Length: 2") + BODY, BODY),
]


def bodies_of(pieces: list[bytes]) -> list[bytes]:
    """Return the bodies of the requests that come in these pieces."""
    reader = RequestReader(1_000)
    found: list[bytes] = []
    body: bytes | None = None
    for piece in pieces:
        reader.add(piece)
        while True:
            if body is None:
                if reader.read_head() is None:
                    break
                body = b""
            part, is_whole = reader.read_body()
            body += part
            if not is_whole:
                break
            found.append(body)
            body = None
    assert (body, reader.unread_bytes) == (None, 0)
    return found


def test_requests_behind_one_another_are_told_apart_wherever_they_are_cut() -> None:
    data, expected = b"".join(sent for sent, _ in SENT), [body for _, body in SENT]
    for size in range(1, len(data) + 1):
        assert bodies_of([data[at : at + size] for at in range(0, len(data), size)]) == expected


def test_what_is_dropped_is_no_request() -> None:
    reader = RequestReader(1_000)
    reader.add(head_of(HOST))
    reader.drop()
    assert (reader.read_head(), reader.unread_bytes) == (None, 0)


@pytest.mark.parametrize("chunks", [CHUNKS, EMPTY_LINES_IN_IT])
def test_a_chunked_body_ends_where_it_ends_wherever_it_is_cut(chunks: bytes) -> None:
    behind = b"\r\nPOST / HTTP/1.1\r\n"
    data = chunks + behind
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            chunked = ChunkedBody(1_000)
            at, is_whole = 0, False
            for end in (first, second, len(data)):
                if not is_whole:
                    _, used, is_whole = chunked.read(data[at:end])
                    at += used
            assert (is_whole, data[at:]) == (True, behind)


def test_what_was_not_read_can_be_dropped() -> None:
    reader = RequestReader(1_000)
    assert reader.unread_bytes == 0
    reader.add(b"GET")
    assert reader.read_body() == (b"", True)
    assert reader.unread_bytes == 3
    reader.drop()
    reader.add(head_of(HOST))
    assert reader.read_head() is not None


def refuses(*pieces: bytes, framing_bytes_max: int) -> bool:
    chunked = ChunkedBody(framing_bytes_max)
    *first, last = pieces
    for piece in first:
        chunked.read(piece)
    try:
        chunked.read(last)
    except RequestError as error:
        return error.status == 431
    return False


@pytest.mark.parametrize("before", [(), (b"3\r\nabc",), (b"2;a\r\n", b"ab")], ids=["first", "later", "twice"])
def test_framing_in_a_row_is_bounded_to_the_byte(before: tuple[bytes, ...]) -> None:
    framing = (b"\r\n" if before else b"") + b"5;" + b"x" * 10
    for pieces in ((framing,), (framing[:5], framing[5:])):
        assert not refuses(*before, *pieces, framing_bytes_max=len(framing))
        assert refuses(*before, *pieces, framing_bytes_max=len(framing) - 1)


def test_framing_is_counted_from_the_last_piece_of_the_body_on() -> None:
    framing = b"\r\n5;" + b"x" * 10
    assert not refuses(b"3\r\n\n\r\n" + framing, framing_bytes_max=len(framing))
    assert refuses(b"3\r\n\n\r\n" + framing, framing_bytes_max=len(framing) - 1)
    assert not refuses(b"1\r\na\r\n" * 100, framing_bytes_max=10)


class CountedParser:
    """A parser that counts how often it is given something."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self.fed = 0

    def feed_data(self, data: Any) -> None:
        self.fed += 1
        self._parser.feed_data(data)


@pytest.mark.parametrize(
    "sent",
    [b"%x\r\n%b\r\n" % (3_000, b"\n\r\n" * 1_000), b"1\r\na\r\n" * 1_000, b"5;a\r\n0\r\n\r\n\r\n" * 1_000],
    ids=["empty lines in a chunk", "small chunks", "what looks like the end"],
)
def test_what_has_arrived_is_read_in_one_go_whatever_is_in_it(sent: bytes) -> None:
    chunked = ChunkedBody(1_000)
    chunked._parser = parser = CountedParser(chunked._parser)
    body, end, is_whole = chunked.read(sent)
    assert (end, is_whole, parser.fed) == (len(sent), False, 1)
    assert len(body) in {3_000, 1_000, 5_000}
    assert chunked.read(b"0\r\nX: y\r\n\r\nGET") == (b"", 11, True)


@pytest.mark.parametrize("size", [b"0" * 40, b"0" * 40 + b"5", b"0" * 31 + b"5", b"5" + b" " * 40, b"F" * 40])
def test_sizes_of_many_digits_are_read_as_llhttp_reads_them_or_refused(size: bytes) -> None:
    sent = size + b"\r\n" + (b"" if size.strip(b"0") == b"" else b"abcde\r\n0\r\n") + b"\r\n"
    chunked = ChunkedBody(1_000)
    expected = b"abcde" if b"5" in size else b"", len(sent), True
    try:
        found = chunked.read(sent + b"GET / HTTP/1.1\r\n\r\n")
    except RequestError:
        return
    assert found == expected
