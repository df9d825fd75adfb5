"""What asks for another protocol than HTTP/1.1: WebSockets, and HTTP/2 without TLS."""

import pytest

from tests.api.scripted import TOKEN
from tests.api.wire import EVALUATE, EVENT, Wire, request


@pytest.mark.parametrize(
    ("path", "token", "status", "code"),
    [
        ("/api/detectors", None, 401, 1100),
        ("/api/detectors", "wrong", 401, 1101),
        ("/api/nowhere", TOKEN, 404, 1004),
        (EVALUATE, TOKEN, 405, 1005),
        ("/api/detectors", TOKEN, 400, 1006),
        ("/healthz", None, 400, 1006),
        ("/nowhere", None, 404, 1004),
    ],
)
async def test_a_websocket_is_refused_in_the_envelope(
    wire: Wire, path: str, token: str | None, status: int, code: int
) -> None:
    headers = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    )
    connection = await wire.connect()
    reply = await (await connection.send(request("GET", path, token=token, headers=headers))).receive()
    assert (reply.status, reply.codes) == (status, [code])
    assert await wire.comes_to_rest()


@pytest.mark.parametrize("settings", ["AAMAAABkAAQCAAAAAAIAAAAA", "***", ""])
async def test_an_offer_to_go_on_with_http_2_is_passed_over(wire: Wire, settings: str) -> None:
    headers = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", f"HTTP2-Settings: {settings}")
    connection = await wire.connect()
    for token, status in ((TOKEN, 200), (None, 401), (TOKEN, 200)):
        reply = await (await connection.send(request("GET", token=token, headers=headers))).receive()
        assert reply.status == status
    reply = await (
        await connection.send(request("POST", EVALUATE, EVENT, token=TOKEN, headers=headers))
    ).receive()
    assert reply.status == 200
    assert await wire.comes_to_rest()
