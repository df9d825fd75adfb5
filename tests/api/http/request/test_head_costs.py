"""What the head of a request costs, also one without a token: its work grows no faster than its bytes."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest
from werkzeug.exceptions import NotFound

from api.http.app import Application
from api.http.request.head import canonical_path, media_type_of
from api.http.request.query import PARAMETERS_MAX, read_key, read_query
from api.http.routes import OPERATIONS
from api.schema.envelope import RequestRefusal
from api.schema.messages.inspecting import StateQuery
from api.server.requests import RequestError, read_head, skip_empty_lines
from api.settings import Settings
from tests.api.scripted import ScriptedBackend
from tests.work_growth import grows_linearly

HEAD_BYTES_MAX = 65_536


SERVICE = Application(Settings(), ScriptedBackend()).quart  # type: ignore[arg-type]


def query(given: bytes) -> None:
    for operation in OPERATIONS:
        if operation.query is not None:
            with suppress(RequestRefusal):
                read_query(operation.query, given)


def head(given: bytes) -> None:
    with suppress(RequestError):
        read_head(given, HEAD_BYTES_MAX, skip_empty_lines(given))


def route(given: bytes) -> None:
    urls = SERVICE.create_url_adapter(SimpleNamespace(path=given.decode(), method="GET"))
    assert urls is not None
    with suppress(NotFound):
        urls.match()


def key(given: bytes) -> None:
    with suppress(RequestRefusal):
        read_key(given.decode())


PARTS: dict[str, Callable[[bytes], object]] = {
    "path": canonical_path,
    "route": route,
    "query": query,
    "key": key,
    "head": head,
    "media type": media_type_of,
}
SHAPES: dict[str, tuple[str, bytes, bytes, bytes]] = {
    "letters of a scheme": ("path", b"", b"a", b""),
    "schemes without an end": ("path", b"", b"a:", b""),
    "origins": ("path", b"", b"a://", b""),
    "escapes": ("path", b"/", b"%61", b""),
    "escaped slashes": ("path", b"/", b"%2F", b""),
    "percent signs": ("path", b"", b"/%", b""),
    "segments": ("route", b"/api/detectors", b"/a", b""),
    "one segment": ("route", b"/api/detectors/", b"a", b""),
    "parameters": ("query", b"", b"a=1&", b""),
    "the same parameter": ("query", b"", b"list=keys&", b""),
    "a number": ("query", b"limit=", b"9", b""),
    "escapes of a parameter": ("query", b"prefix=", b"%61", b""),
    "ampersands": ("query", b"", b"&", b""),
    "few parameters of one name": ("query", b"a&" * 50, b"%61", b""),
    "many segments with escapes": ("path", b"/", b"%41/", b""),
    "few segments with escapes": ("path", b"/a/" * 5, b"%41", b""),
    "digits of a key": ("key", b'{"a": ', b"9", b"}"),
    "depth of a key": ("key", b"", b'{"a":', b""),
    "escapes of a key": ("key", b'{"a": "', rb"\"", b""),
    "empty lines": ("head", b"", b"\r\n", b""),
    "line feeds": ("head", b"GET / HTTP/1.1", b"\r\n\t", b""),
    "half empty lines": ("head", b"\n", b"\r", b""),
    "a line without an end": ("head", b"GET /", b"a", b""),
    "a method": ("head", b"", b"!", b"\r\n\r\n"),
    "headers": ("head", b"GET / HTTP/1.1\r\nhost: x\r\n", b"a: b\r\n", b"\r\n"),
    "options of a connection": ("head", b"GET / HTTP/1.1\r\nhost: x\r\nconnection: ", b"a, ", b"\r\n\r\n"),
    "connections": ("head", b"GET / HTTP/1.1\r\nhost: x\r\n", b"connection: a\r\n", b"\r\n"),
    "parameters of a media type": ("media type", b"application/json", b"; a=b", b""),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_head_is_read_in_time_that_is_linear_in_its_bytes(shape: str) -> None:
    part, start, unit, end = SHAPES[shape]

    def work(size: int) -> None:
        PARTS[part](start + unit * (size // len(unit)) + end)

    assert grows_linearly(work, HEAD_BYTES_MAX // 4 - 100)


def test_a_path_of_more_segments_than_any_is_not_decoded() -> None:
    most = b"/%41" * 16
    assert canonical_path(most) == "/A" * 16
    assert canonical_path(most + b"/%41") == "/%41" * 17
    assert max(operation.path.count("/") for operation in OPERATIONS) < 16


def test_a_query_has_so_many_parameters_and_no_more() -> None:
    assert read_query(StateQuery, b"x&" * (PARAMETERS_MAX - 1) + b"limit=7").limit == 7
    with pytest.raises(RequestRefusal, match="more than 64 parameters") as caught:
        read_query(StateQuery, b"x&" * PARAMETERS_MAX + b"limit=7")
    assert caught.value.code == 1006


def test_what_is_not_a_key_is_refused_by_what_it_is() -> None:
    digits = "9" * 5_000
    for text in (f'{{"a": {digits}}}', '{"a": NaN}', '{"a": 1e999}', '{"a": null}', '{"a":' * 5_000, digits):
        with pytest.raises(RequestRefusal) as caught:
            read_key(text)
        assert caught.value.code == 1006


def test_a_number_of_any_length_is_refused_in_a_query() -> None:
    assert read_query(StateQuery, b"limit=7").limit == 7
    for number in (b"9" * 5_000, b"9" * 20, b"1e3", b"-1", b"1e999", b"", b"NaN"):
        with pytest.raises(RequestRefusal) as caught:
            read_query(StateQuery, b"limit=" + number)
        assert caught.value.code == 1006
