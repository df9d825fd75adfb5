"""What asks for another protocol than HTTP/1.1: WebSockets, and HTTP/2 without TLS."""

import asyncio

import h2.config
import h2.connection
import h2.events
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


async def test_http_2_without_tls_is_served_and_early_refusals_free_its_streams(wire: Wire) -> None:
    connection = await wire.connect()
    http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    http2.initiate_connection()
    streams = {}
    for number in range(40):
        stream = http2.get_next_available_stream_id()
        head = [(":method", "POST"), (":path", EVALUATE), (":scheme", "http"), (":authority", "localhost")]
        if number % 2:
            head.append(("authorization", f"Bearer {TOKEN}"))
        http2.send_headers(stream, head)
        http2.send_data(stream, EVENT, end_stream=True)
        streams[stream] = 200 if number % 2 else 401
    await connection.send(http2.data_to_send())
    found = {}
    ended = 0
    async with asyncio.timeout(10):
        while ended < len(streams):
            for event in http2.receive_data(await connection.reader.read(65_536)):
                match event:
                    case h2.events.ResponseReceived():
                        found[event.stream_id] = int(dict(event.headers)[":status"])
                    case h2.events.StreamEnded():
                        ended += 1
            await connection.send(http2.data_to_send())
    assert found == streams
    assert await wire.comes_to_rest()


async def test_over_http_2_a_refusal_overtakes_its_body(wire: Wire) -> None:
    connection = await wire.connect()
    http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    http2.initiate_connection()
    head = [(":method", "POST"), (":path", EVALUATE), (":scheme", "http"), (":authority", "localhost")]
    for stream in (1, 3):
        http2.send_headers(stream, head)
        http2.send_data(stream, b"x" * 100)
        await connection.send(http2.data_to_send())
        seen: set[type] = set()
        async with asyncio.timeout(5):
            while h2.events.DataReceived not in seen:
                seen |= {type(event) for event in http2.receive_data(await connection.reader.read(65_536))}
            http2.send_data(stream, b"x" * 100, end_stream=True)
            await connection.send(http2.data_to_send())
            while h2.events.StreamEnded not in seen:
                seen |= {type(event) for event in http2.receive_data(await connection.reader.read(65_536))}
    assert await wire.comes_to_rest()
