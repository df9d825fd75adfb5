"""The server reads each request as h11 does, and refuses what h11 refuses."""

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.server.requests import ChunkedBody, RequestError, RequestHead, read_head

HEAD_BYTES_MAX = 16_384
PATH = b"/api/detectors/%b/evaluate" % (b"0123456789abcdef" * 2)
LENGTH = b"Content-Length: 7"
CHUNKED = b"Transfer-Encoding: chunked"
USUAL = (b"Host: localhost:8000", b"Authorization: Bearer rd_abc", b"Content-Type: application/json")
BODY = b'{"a":1}'
CHUNKS = b"3\r\n" + BODY[:3] + b"\r\n4\r\n" + BODY[3:] + b"\r\n0\r\n\r\n"
BEHIND = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"

OFFER = b"\r\n".join((b"GET / HTTP/1.1", *USUAL, b"Upgrade: h2c", b"Connection: Upgrade", CHUNKED))
OFFER += b"\r\n\r\n" + CHUNKS

lines = st.sampled_from(
    [
        b"POST %b HTTP/1.1" % PATH,
        b"GET / HTTP/1.1",
        b"HEAD /a?b=c#d HTTP/1.0",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT a:80 HTTP/1.1",
        b"M-SEARCH x HTTP/1.1",
        b"post / HTTP/1.1",
        b"UNHEARD-OF http://a/ HTTP/1.1",
        b"GET  / HTTP/1.1",
        b" GET / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET /\x80 HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /\t HTTP/1.1",
        b"GET / HTTP/1.12",
        b"GET / http/1.1",
        b"GET /",
        b"G(T / HTTP/1.1",
    ]
)
names = st.sampled_from(
    [
        *(b"Host", b"host", b"Content-Length", b"content-length", b"Transfer-Encoding", b"Connection"),
        *(b"Expect", b"Upgrade", b"X-Any", b"x_y.z|~!#$%&'*+-^`", b"", b"Content-Length ", b" Host"),
        *(b"X\x00Y", b"X:Y", b"\tX", b"X(Y)", b"X\x80", b"Transfer-Encoding ", b"\x0bHost"),
    ]
)
values = st.sampled_from(
    [
        *(b"localhost", b"7", b"07", b"7, 7", b"+7", b"7 7", b"0", b"8", b"", b"7" * 30, b"\xb2", b"0x7"),
        *(b"-7", b"7_0", b"chunked", b"Chunked", b"chunked, chunked", b"gzip, chunked", b"chunked, gzip"),
        *(b"gzip", b"identity", b"xchunked", b"chunked;q=1", b"\x0bchunked", b"close", b"keep-alive"),
        *(b"Keep-Alive", b"keep-alive, close", b"Upgrade", b"upgrade, close", b"100-continue", b"h2c"),
        *(b"a b", b"a\tb", b"a  ", b"\x80", b"a\x00", b"a\nb", b"a\rb", b"a\r\n b", b"a\r\n\tb", b"a\x7f"),
        b"a\r\nX-More: b",
        b"a\r\n" + LENGTH,
        b"a\n" + CHUNKED,
    ]
)
blanks = st.sampled_from([b"", b" ", b"\t", b" \t ", b"\x0b"])
headers = st.builds(lambda *parts: b"%b:%b%b%b" % parts, names, blanks, values, blanks)
ends = st.sampled_from([b"\r\n\r\n", b"\r\n", b"\n\n", b"\r\n\n", b"\n\r\n", b"\r\n \r\n", b"\r\r\n\r\n"])
sizes = st.sampled_from(
    [
        b"3",
        b"03",
        b"3;a=b",
        b'3;a="b"',
        b"3;a",
        b"3 ",
        b" 3",
        b"0x3",
        b"-3",
        b"+3",
        b"",
        b"4",
        b"F" * 17,
        b"3;\nx",
    ]
)
line_ends = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"", b"\r\r\n"])
trailers = st.sampled_from([b"", b"", b"X: y\r\n", b"X y\r\n", b" X: y\r\n", LENGTH + b"\r\n", b"X: y\n"])
changes = st.sampled_from([b"", b"\r", b"\n", b"\r\n", b" ", b":", b"\x00", b"\x80", b"7", b",", b"\t", b";"])


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """Three bytes in a chunk, nearly always valid."""
    sound = draw(st.booleans())
    size = b"3" if sound else draw(sizes)
    eols = [b"\r\n" if sound else draw(line_ends) for _ in range(4)]
    trailer = draw(trailers)
    return b"".join((size, eols[0], BODY[:3], eols[1], b"0", eols[2], trailer, eols[3]))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request with few errors, and perhaps another one after it."""
    framing = draw(st.sampled_from([(LENGTH, BODY), (CHUNKED, CHUNKS), (CHUNKED, b"drawn"), (b"X: y", b"")]))
    fields = [line for line in (*USUAL, framing[0]) if draw(st.integers(0, 19))]
    fields += draw(st.lists(headers, max_size=2))
    line = draw(lines) if not draw(st.integers(0, 3)) else b"POST %b HTTP/1.1" % PATH
    end = draw(ends) if not draw(st.integers(0, 9)) else b"\r\n\r\n"
    body = framing[1] if framing[1] != b"drawn" else draw(chunks())
    data = b"\r\n".join([line, *draw(st.permutations(fields))]) + end + body
    data += draw(st.sampled_from([b"", BEHIND]))
    if draw(st.booleans()):
        return data
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(changes) + data[at + draw(st.integers(0, 2)) :]


def read(data: bytes, cut: int) -> tuple[RequestHead, bytes, bytes | None]:
    """Return what the server reads of data that comes in pieces: head, body, and what stands behind it.

    The last is None where the body has yet to come whole. Raises RequestError; TimeoutError where the head
    does not come whole, which h11 may have refused by then.
    """
    found = read_head(data, HEAD_BYTES_MAX)
    if found is None:
        raise TimeoutError
    head, size = found
    rest = data[size:]
    if head.body_bytes is not None:
        body, rest = rest[: head.body_bytes], rest[head.body_bytes :]
        return head, body, rest if len(body) == head.body_bytes else None
    chunked = ChunkedBody(HEAD_BYTES_MAX)
    body = b""
    for begin in range(0, len(rest), cut):
        piece = rest[begin : begin + cut]
        part, used, is_whole = chunked.read(piece)
        body += part
        if is_whole:
            return head, body, piece[used:] + rest[begin + cut :]
        assert used == len(piece)
    return head, body, None


def by_h11(data: bytes) -> tuple[h11.Connection, h11.Request, bytes, bytes | None]:
    """Return what h11 reads from the same data. Raises h11.RemoteProtocolError."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    asked = connection.next_event()
    assert isinstance(asked, h11.Request), "it has the whole head"
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    if event is h11.NEED_DATA:
        return connection, asked, body, None
    assert isinstance(event, h11.EndOfMessage)
    rest = connection.trailing_data[0]
    if connection.their_state is h11.MIGHT_SWITCH_PROTOCOL:
        # Whether it keeps the connection is known once the offer is declined.
        connection.send(h11.Response(status_code=200, headers=[]))
    return connection, asked, body, rest


@settings(max_examples=20 * settings.default.max_examples)
@given(requests(), st.sampled_from([1, 2, 3, 7, 10_000]))
@example(b"\r\n".join((b"POST / HTTP/1.1", *USUAL, LENGTH, CHUNKED)) + b"\r\n\r\n" + CHUNKS, 10_000)
@example(b"\r\n".join((b"POST / HTTP/1.1", *USUAL, CHUNKED, LENGTH)) + b"\r\n\r\n" + CHUNKS, 10_000)
@example(b"\r\n".join((b"POST / HTTP/1.1", *USUAL, LENGTH, LENGTH)) + b"\r\n\r\n" + BODY, 10_000)
@example(b"\r\n".join((b"POST / HTTP/1.1", *USUAL, CHUNKED)) + b"\r\n\r\n" + CHUNKS + BEHIND, 1)
@example(OFFER, 3)
@example(b"GET / HTTP/1.0\r\nUpgrade: x\r\n\r\n", 1)
def test_what_is_read_is_what_h11_reads(data: bytes, cut: int) -> None:
    try:
        head, body, rest = read(data, cut)
    except (RequestError, TimeoutError):
        return
    connection, asked, h11_body, h11_rest = by_h11(data)
    assert (head.method, head.target, head.version) == (
        asked.method.upper(),
        asked.target,
        asked.http_version,
    )
    assert head.fields.headers == list(asked.headers)
    assert (body, rest) == (h11_body, h11_rest)
    if rest is not None:
        assert head.keeps_alive == (connection.their_state is not h11.MUST_CLOSE)


@pytest.mark.parametrize("more", [(), (b"Connection: Keep-Alive",), (b"Accept: */*", b"X-Trace:  a b\t")])
@pytest.mark.parametrize("framing", [LENGTH, CHUNKED])
def test_what_callers_usually_send_is_read(framing: bytes, more: tuple[bytes, ...]) -> None:
    data = b"\r\n".join((b"POST %b HTTP/1.1" % PATH, *USUAL, framing, *more)) + b"\r\n\r\n"
    head, body, rest = read(data + (BODY if framing == LENGTH else CHUNKS) + BEHIND, 10_000)
    assert (head.target, body, rest, head.keeps_alive) == (PATH, BODY, BEHIND, True)


@pytest.mark.parametrize(
    "framing",
    [
        (LENGTH, CHUNKED),
        (CHUNKED, LENGTH),
        (LENGTH, LENGTH),
        (CHUNKED, CHUNKED),
        (b"Content-Length: 7, 7",),
        (b"Content-Length: +7",),
        (b"Content-Length:",),
        (b"Transfer-Encoding: gzip",),
        (b"Transfer-Encoding: gzip, chunked",),
        (b"Transfer-Encoding: gzip", CHUNKED),
        (b"Transfer-Encoding: chunked;q=1",),
        (b"Transfer-Encoding : chunked",),
        (b"X: a\r\n " + LENGTH,),
        (b"X: a\n" + LENGTH,),
        (b"X: a\r" + LENGTH,),
        (b"X: a\x00",),
        (b"Host: b",),
    ],
)
def test_what_two_readers_could_tell_apart_differently_is_refused(framing: tuple[bytes, ...]) -> None:
    data = b"\r\n".join((b"POST / HTTP/1.1", *USUAL, *framing)) + b"\r\n\r\n"
    with pytest.raises(RequestError):
        read_head(data, HEAD_BYTES_MAX)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\n", b"\n\r\n"])
def test_a_head_that_ends_in_bare_line_feeds_is_refused_at_once(end: bytes) -> None:
    with pytest.raises(RequestError):
        read_head(b"GET / HTTP/1.1\r\nHost: a" + end, HEAD_BYTES_MAX)


@pytest.mark.parametrize(
    "bad",
    [b"3\nabc\r\n", b"3\r\nabc\n", b"3\r\nabcd\r\n", b"3 \r\nabc\r\n", b"0x3\r\nabc\r\n", b"-3\r\nabc\r\n",
     b"F" * 17 + b"\r\n", b"3;a\nb\r\nabc\r\n", b"0\r\nX y\r\n\r\n", b"0\r\nX: y\r\n z\r\n\r\n",
     b"0\r\n" + LENGTH + b"\r\n\r\n"],
)  # fmt: skip
@pytest.mark.parametrize("cut", [1, 10_000])
def test_bad_chunks_are_refused(bad: bytes, cut: int) -> None:
    chunked = ChunkedBody(HEAD_BYTES_MAX)
    with pytest.raises(RequestError):  # noqa: PT012 -- which piece is refused is open
        for begin in range(0, len(bad), cut):
            chunked.read(bad[begin : begin + cut])
