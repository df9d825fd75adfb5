"""Errors that the server answers itself, below the application: in the envelope like all others."""

import asyncio
import logging
from typing import Any

import pytest
from hypercorn.config import Config

from api.server.exchange import HEADS
from api.server.hypercorn_config import server_config
from api.settings import Settings
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, Wire, request, served

GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
CHUNKED = request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",))
NO_REQUESTS = {
    "a line that is none": (b"what\r\n\r\n", 400),
    "a header without a colon": (GET + b"x\r\n\r\n", 400),
    "a blank before the colon": (GET + b"x : y\r\n\r\n", 400),
    "a control character": (GET + b"x: \x00\r\n\r\n", 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two hosts": (GET + b"Host: b\r\n\r\n", 400),
    "a length that is none": (GET + b"Content-Length: x\r\n\r\n", 400),
    "two lengths": (GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "a length beside chunks": (CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n", 400),
    "a target without an end": (b"GET /" + b"%41/" * 16_000, 400),
    "a query without an end": (b"GET /api/detectors?" + b"a&" * 20_000, 400),
    "an unknown transfer encoding": (GET + b"Transfer-Encoding: gzip\r\n\r\n", 400),
    "a chunk without a size": (CHUNKED + b"x\r\n", 400),
    "a chunk of another size": (CHUNKED + b"1\r\n{}\r\n", 400),
    "a head without an end": (GET + b"x: " + b"y" * 100_000, 400),
    "header lines without an end": (GET + b"x: y\r\n" * 20_000, 400),
    "a size of a chunk without an end": (CHUNKED + b"0" * 100_000, 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/1.2": (GET.replace(b"1.1", b"1.2") + b"\r\n", 505),
}


@pytest.mark.parametrize(
    "ahead", [b"", request("POST", EVALUATE, EVENT, token=TOKEN)], ids=["", "behind another"]
)
@pytest.mark.parametrize(("sent", "status"), NO_REQUESTS.values(), ids=NO_REQUESTS)
async def test_what_is_no_request_is_refused_in_the_envelope(
    wire: Wire, sent: bytes, status: int, ahead: bytes
) -> None:
    connection = await wire.connect()
    if ahead:
        await (await connection.send(ahead)).receive()
    for at in range(0, len(sent), 10_000):
        await connection.send(sent[at : at + 10_000])
        await asyncio.sleep(0.001)
    reply = await connection.receive()
    assert (reply.status, reply.codes, reply.headers["connection"]) == (status, [1006], "close")
    assert list(reply.envelope) == ["success", "errors", "messages", "result"]
    assert await connection.at_end()
    assert await wire.comes_to_rest()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_application_that_breaks_leaves_an_envelope_and_a_line_in_the_log(
    wire: Wire,
    scripted: ScriptedBackend,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("api.http.pipeline.canonical_path", breaks)
    with caplog.at_level(logging.ERROR, "rule_detector.api"):
        connection = await wire.connect()
        reply = await (await connection.send(request(method, "/healthz"))).receive(method)
    assert (reply.status, reply.headers["connection"]) == (500, "close")
    said = [record.getMessage() for record in caplog.records if record.name == "rule_detector.api"]
    if method == "GET":
        assert reply.codes == [1500]
        reference = reply.envelope["errors"][0]["message"].split()[-1]
        assert said == [f"internal error {reference}: the application ended without an answer"]
    assert await connection.at_end()


SPLITTING = [b"a\r\nset-cookie: b", b"a\n", b"\ra", b"a\r\n\r\nHTTP/1.1 200 \r\n"]


@pytest.mark.parametrize("value", SPLITTING)
def test_a_line_break_in_a_header_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="has a line break"):
        HEADS.whole(200, ((b"x", value),), 0, b"id")
    with pytest.raises(ValueError, match="has a line break"):
        HEADS.started(200, [(value, b"x")], b"id")


@pytest.mark.parametrize("value", SPLITTING)
async def test_whoever_asked_gets_an_error_instead(value: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        headers = [] if scope["path"] == "/healthz" else [(b"x", value)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    app.end_streams = lambda: None  # type: ignore[attr-defined]
    async with served(app, Settings()) as wire:
        answer = await wire.once(request("GET", "/split"), "GET")
    assert (answer.status, answer.codes) == (500, [1500])
    assert "x" not in answer.headers


def test_the_configuration_has_what_is_set_and_read() -> None:
    untouched = Config()
    config = server_config(Settings())
    for name in (
        "accesslog",
        "backlog",
        "bind",
        "errorlog",
        "graceful_timeout",
        "include_server_header",
        "keep_alive_max_requests",
        "keep_alive_timeout",
        "root_path",
    ):
        assert hasattr(untouched, name), name
        assert hasattr(config, name), name
    config.bind = ["fd://0"]
    assert config.bind == ["fd://0"]
    # What nothing sets that is not there already, but for the TLS context: a changed name is set in vain.
    assert {name.removeprefix("_") for name in vars(config)} <= {*dir(untouched), "context"}
