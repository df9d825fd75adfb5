"""A header of a response cannot bring another one, nor another response."""

from typing import Any

import pytest

from api.server.http1.exchange import HEADS
from api.settings import Settings
from tests.api.wire import request, served

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
