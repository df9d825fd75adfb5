"""Headers and paths, on their own."""

import pytest

from api.http.handling.event_stream import EVENT_STREAM
from api.http.request.head import (
    accepts,
    announced_length,
    authorization,
    canonical_path,
    check_headers,
    check_length,
    idempotency_key,
)
from api.schema.envelope import RequestRefusal
from api.server.requests import Fields
from engine.language.diagnostics import Entry

JSON = b"application/json"


@pytest.mark.parametrize(
    ("raw_path", "path"),
    [
        (b"/api/detectors", "/api/detectors"),
        (b"/api/%64etectors", "/api/detectors"),
        (b"/a%2Fb", "/a%2Fb"),
        (b"/a%2fb/%63", "/a%2fb/c"),
        (b"/%252F", "/%2F"),
        (b"/%", "/%"),
        (b"/%zz", "/%zz"),
        (b"/%FF", "/\ufffd"),
        (b"/%C3%A4", "/\u00e4"),
        (b"http://host:80/a", "/a"),
        (b"HTTP://host", ""),
        (b"/http://host/a", "/http://host/a"),
        (b"*", "*"),
        (b"*http://host/a", "*http://host/a"),
        (b"a/b", "a/b"),
    ],
)
def test_a_path_is_what_its_segments_are(raw_path: bytes, path: str) -> None:
    assert canonical_path(raw_path) == path


def test_a_header_that_came_twice_is_noticed() -> None:
    head = Fields([(b"authorization", b"Bearer a"), (b"x", b"1"), (b"y", b"2"), (b"authorization", b"b")])
    assert authorization(head) == b""
    assert head.repeated == {b"authorization"}
    assert head.size_bytes == 13 + 8 + 4 + 2 * (1 + 1 + 4) + 13 + 1 + 4


@pytest.mark.parametrize("length", [b"", b"-1", b"+1", b"0x1", b"1.0", b"\xb2", b"9" * 19])
def test_a_length_that_is_none_is_refused(length: bytes) -> None:
    # Hypercorn's HTTP/2 lets any value through.
    head = Fields([(b"content-length", length)])
    with pytest.raises(RequestRefusal) as caught:
        check_headers(head, bytes_max=16_384, media_types=(JSON,))
    assert caught.value.code == 1006


@pytest.mark.parametrize("length", [b"0", b"007", b"9" * 18])
def test_a_length_is_a_number(length: bytes) -> None:
    head = Fields([(b"content-length", length)])
    check_headers(head, bytes_max=16_384, media_types=(JSON,))
    check_length(head, int(length))
    with pytest.raises(RequestRefusal) as caught:
        check_length(head, int(length) - 1)
    assert caught.value.code == 1003


def test_every_wrong_header_is_listed() -> None:
    head = Fields(
        [
            (b"content-encoding", b"br"),
            (b"content-type", b"a/b"),
            (b"content-type", b"c/d"),
            (b"content-length", b"x"),
        ]
    )
    with pytest.raises(RequestRefusal) as caught:
        check_headers(head, bytes_max=10, media_types=(JSON,))
    assert [entry.code for entry in caught.value.entries] == [1006] * 3
    # Where no body is taken, nothing but the size of all matters.
    check_headers(head, bytes_max=1_000, media_types=())
    with pytest.raises(RequestRefusal):
        check_headers(head, bytes_max=10, media_types=())


def test_the_size_of_headers_is_limited_to_the_byte() -> None:
    head = Fields([(b"a", b"b" * 95)])
    check_headers(head, bytes_max=100, media_types=(JSON,))
    with pytest.raises(RequestRefusal):
        check_headers(head, bytes_max=99, media_types=(JSON,))


@pytest.mark.parametrize("key", [b"", b" ", b"a b", b"\ta", b"\x7f", b"\xe4", b"a" * 256])
def test_a_key_that_is_none_is_refused_where_keys_are_taken(key: bytes) -> None:
    head = Fields([(b"idempotency-key", key)])
    with pytest.raises(RequestRefusal, match="Idempotency-Key: expected 1 to 255 visible ASCII") as caught:
        check_headers(head, bytes_max=16_384, media_types=(JSON,), takes_key=True)
    assert caught.value.code == 1006
    with pytest.raises(RequestRefusal):
        idempotency_key(head)
    check_headers(head, bytes_max=16_384, media_types=(JSON,))


@pytest.mark.parametrize("key", [b"!", b"~", b"0f8b-\"'{}", b"a" * 255])
def test_a_key_is_any_visible_ascii_text(key: bytes) -> None:
    head = Fields([(b"idempotency-key", key)])
    check_headers(head, bytes_max=16_384, media_types=(JSON,), takes_key=True)
    assert idempotency_key(head) == key.decode()
    assert idempotency_key(Fields([])) == ""


def test_a_key_that_came_twice_is_refused_even_if_it_is_the_same() -> None:
    head = Fields([(b"idempotency-key", b"a"), (b"idempotency-key", b"a")])
    with pytest.raises(RequestRefusal) as caught:
        check_headers(head, bytes_max=16_384, media_types=(JSON,), takes_key=True)
    assert [entry.code for entry in caught.value.entries] == [1006]
    assert "came more than once" in caught.value.entries[0].message
    with pytest.raises(RequestRefusal, match="more than once"):
        idempotency_key(head)


MSGPACK = b"application/msgpack"


@pytest.mark.parametrize(
    ("sent", "media_type"),
    [
        (None, JSON),
        (JSON, JSON),
        (MSGPACK, MSGPACK),
        (b"Application/JSON ; charset=utf-8", JSON),
        (b"application/msgpack;a=b;c", MSGPACK),
    ],
)
def test_the_media_type_of_a_body_is_told_by_its_header(sent: bytes | None, media_type: bytes) -> None:
    head = Fields([] if sent is None else [(b"content-type", sent)])
    assert check_headers(head, bytes_max=16_384, media_types=(JSON, MSGPACK)) == media_type


@pytest.mark.parametrize(
    ("sent", "shown"),
    [(b"text/html; a=b", "text/html"), (b"x" * 100, "x" * 80), (b"\xe4", "\u00e4"), (b"", "")],
)
def test_a_media_type_that_is_not_taken_is_shown(sent: bytes, shown: str) -> None:
    head = Fields([(b"content-type", sent)])
    with pytest.raises(RequestRefusal) as caught:
        check_headers(head, bytes_max=16_384, media_types=(JSON, MSGPACK))
    said = f"expected the Content-Type `application/json` or `application/msgpack`, got `{shown}`"
    assert caught.value.entries == (Entry(1002, said),)


@pytest.mark.parametrize("media_types", [(), (JSON,)])
def test_a_websocket_is_refused_and_other_upgrades_are_ignored(media_types: tuple[bytes, ...]) -> None:
    check_headers(Fields([(b"upgrade", b"h2c")]), bytes_max=16_384, media_types=media_types)
    with pytest.raises(RequestRefusal) as caught:
        check_headers(Fields([(b"upgrade", b" WebSocket")]), bytes_max=16_384, media_types=media_types)
    said = "Upgrade: the path is not served over WebSocket"
    assert caught.value.entries == (Entry(1006, said),)


def test_headers_that_came_once_are_as_they_came() -> None:
    head = Fields([(b"authorization", b"Bearer a"), (b"content-length", b"12")])
    assert (authorization(head), announced_length(head)) == (b"Bearer a", 12)
    assert (authorization(Fields([])), announced_length(Fields([]))) == (None, None)
    assert announced_length(Fields([(b"content-length", b"x")])) is None


@pytest.mark.parametrize(
    ("headers", "does"),
    [
        ([], False),
        ([(b"x", b"1"), (b"accept", b"text/html, text/event-stream")], True),
        ([(b"accept", b"Text/Event-Stream; charset=utf-8")], True),
        ([(b"accept", b"application/json"), (b"accept", b"text/event-stream")], True),
        ([(b"accept", b"application/json, text/event-stream;q=0.1")], False),
        ([(b"accept", b"text/event-stream;q=0")], False),
        ([(b"accept", b"text/event-stream-not")], False),
        ([(b"accept", b"text/*, */*")], False),
        ([(b"accept", b"\xff;;q=x")], False),
        ([(b"x", b"text/event-stream")], False),
    ],
)
def test_a_caller_accepts_what_it_names_and_does_not_want_less_than_json(
    headers: list[tuple[bytes, bytes]], does: bool
) -> None:
    assert accepts(Fields(headers), EVENT_STREAM) is does
