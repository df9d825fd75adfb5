"""What is read as a plain request is what h11 reads of the same bytes."""

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.server.fast_heads import read_plain

PATH = b"/api/detectors/%b/evaluate" % (b"0123456789abcdef" * 2)
USUAL = (
    b"Host: localhost:8000",
    b"Authorization: Bearer rd_abc",
    b"Content-Type: application/json",
    b"Content-Length: 7",
)
BODY = b'{"a":1}'

starts = st.sampled_from(
    [
        b"POST %b HTTP/1.1" % PATH,
        b"POST %b/batch HTTP/1.1" % PATH,
        *(
            b"POST %b%b HTTP/1.1" % (PATH, more)
            for more in (b"/", b"?a=1", b"/batch/", b" ", b"#a", b"%20", b"\x00")
        ),
        *(b"%b %b HTTP/1.1" % (method, PATH) for method in (b"GET", b"post", b" POST", b"\r\nPOST")),
        *(
            b"POST %b %b" % (PATH, version)
            for version in (b"HTTP/1.0", b"HTTP/2.0", b"http/1.1", b"HTTP/1.12")
        ),
        b"POST %b HTTP/1.1" % PATH.upper(),
        b"POST %b HTTP/1.1" % PATH.replace(b"/api", b"//api"),
    ]
)
names = st.sampled_from(
    [
        *(b"Host", b"host", b"Content-Length", b"content-length", b"Transfer-Encoding", b"Connection"),
        *(
            b"Expect",
            b"Upgrade",
            b"Content-Length ",
            b" Host",
            b"X-Any",
            b"x_y.z|~!#$%&'*+-^`",
            b"",
            b"X\x00Y",
        ),
        *(b"X:Y", b"\tX", b"X(Y)", b"X\x80"),
    ]
)
values = st.sampled_from(
    [
        *(b"localhost", b"7", b"07", b"7, 7", b"+7", b"7 7", b"0", b"8", b"", b"7" * 30, b"\xb2", b"0x7"),
        *(b"chunked", b"close", b"keep-alive", b"Keep-Alive", b"keep-alive, close", b"100-continue", b"h2c"),
        *(
            b"a b",
            b"a\tb",
            b"a  ",
            b"\x80",
            b"a\x00",
            b"a\nb",
            b"a\rb",
            b"a\r\n b",
            b"a\x7f",
            b"a\r\nX-More: b",
        ),
    ]
)
blanks = st.sampled_from([b"", b" ", b"\t", b" \t ", b"\x0b"])
headers = st.builds(lambda *parts: b"%b:%b%b%b" % parts, names, blanks, values, blanks)
ends = st.sampled_from([b"\r\n\r\n", b"\r\n", b"\n\n", b"\r\n \r\n", b"\r\n\r\n\r\n", b""])
bodies = st.sampled_from([BODY, b"", b"{}", BODY + b"P", BODY + b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request like those that are plain, with little that is not."""
    lines = [line for line in USUAL if draw(st.integers(0, 19))]
    lines += draw(st.lists(headers, max_size=2))
    lines = draw(st.permutations(lines))
    start = draw(starts) if not draw(st.integers(0, 3)) else b"POST %b HTTP/1.1" % PATH
    end = draw(ends) if not draw(st.integers(0, 9)) else b"\r\n\r\n"
    data = b"\r\n".join([start, *lines]) + end + (draw(bodies) if draw(st.booleans()) else BODY)
    if draw(st.booleans()):
        return data
    at = draw(st.integers(0, len(data)))
    changed = draw(
        st.sampled_from([b"", b"\r", b"\n", b"\r\n", b" ", b":", b"\x00", b"\x80", b"7", b",", b"\t"])
    )
    return data[:at] + changed + data[at + draw(st.integers(0, 2)) :]


def by_h11(data: bytes) -> tuple[h11.Request, bytes, bytes]:
    """Give what h11 reads: a request, its body as far as it has come, and what stands behind it."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    asked = connection.next_event()
    assert isinstance(asked, h11.Request)
    assert not connection.they_are_waiting_for_100_continue
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += event.data
    if event is h11.NEED_DATA:
        return asked, body, b""
    assert isinstance(event, h11.EndOfMessage)
    connection.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
    connection.send(h11.EndOfMessage())
    rest, ended = connection.trailing_data
    assert not ended
    # It stays for another request.
    connection.start_next_cycle()
    return asked, body, rest


def usual(*more: bytes, without: bytes = b"none", body: bytes = BODY) -> bytes:
    """Give a request as it usually is, but for a little."""
    lines = [line for line in USUAL if not line.startswith(without)]
    return b"\r\n".join([b"POST %b HTTP/1.1" % PATH, *lines, *more]) + b"\r\n\r\n" + body


@settings(max_examples=20 * settings.default.max_examples)
@given(requests())
@example(usual(b"Content-Length: 8"))
@example(usual(b"Host: other"))
@example(usual(b"Transfer-Encoding: chunked"))
@example(usual(b"Expect: 100-continue"))
@example(usual(b"Connection: close"))
@example(usual(b"Connection: close", b"Connection: keep-alive"))
@example(usual(b"Connection: keep-alive, close"))
@example(usual(b"Content-Length: %07d" % 7, without=b"Content-Length"))
@example(usual(b"Content-Length: %0999999d" % 7, without=b"Content-Length"))
@example(usual(without=b"Host"))
@example(usual(without=b"Content-Length"))
@example(usual(body=BODY + b"x"))
@example(usual(body=BODY[1:]))
def test_a_plain_head_is_what_h11_reads(data: bytes) -> None:
    plain = read_plain(data)
    if plain is not None:
        asked, body, rest = by_h11(data)
        assert (asked.method, asked.http_version) == (b"POST", b"1.1")
        assert (plain.target, plain.headers) == (asked.target, list(asked.headers))
        assert data == plain.as_it_came + body + rest
        assert len(body) == plain.body_bytes or (len(body) < plain.body_bytes and not rest)


@pytest.mark.parametrize("more", [(), (b"Connection: Keep-Alive",), (b"Accept: */*", b"X-Trace:  a b\t")])
@pytest.mark.parametrize("path", [PATH, PATH + b"/batch"])
def test_what_callers_send_is_plain(path: bytes, more: tuple[bytes, ...]) -> None:
    plain = read_plain(usual(*more).replace(PATH, path))
    assert plain is not None
    assert plain.target == path
    assert plain.body_bytes == len(BODY)
    assert plain.as_it_came + BODY == usual(*more).replace(PATH, path)
