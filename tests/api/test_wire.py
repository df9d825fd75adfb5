"""What only shows on real sockets: bodies refused early, framing, disconnects, upgrades."""

import asyncio
import json
from collections.abc import AsyncIterator

import h2.config
import h2.connection
import h2.events
import pytest

from api import dispatch
from api.app import create_app
from api.settings import Settings
from engine.evaluation.events import Answer
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedFleet
from tests.api.wire import Connection, Wire, chunked, request, served

EVALUATE = f"/api/detectors/{DETECTOR}/evaluate"
EVENT = json.dumps({"event": {"fields": {}, "timestamp_ms": 0}}).encode()
SETTINGS = Settings(max_body_bytes=100_000, max_batch_body_bytes=200_000, max_drain_bytes=400_000)


@pytest.fixture
def fleet() -> ScriptedFleet:
    return ScriptedFleet()


@pytest.fixture
async def wire(fleet: ScriptedFleet) -> AsyncIterator[Wire]:
    async with served(create_app(SETTINGS, fleet), SETTINGS) as wire:
        yield wire


@pytest.fixture
async def hasty_wire(fleet: ScriptedFleet, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    """As `wire`, with little time for a request."""
    monkeypatch.setattr(dispatch, "BACKSTOP_S", 0.1)
    settings = Settings(deadline_s=0.1)
    async with served(create_app(settings, fleet), settings) as wire:
        yield wire


async def good(connection: Connection) -> bool:
    """Tell whether a connection still serves."""
    reply = await (await connection.send(request("GET", token=TOKEN))).receive()
    return reply.status == 200


async def test_an_evaluation_is_answered_in_the_envelope(wire: Wire, fleet: ScriptedFleet) -> None:
    reply = await wire.once(request("POST", EVALUATE, EVENT, token=TOKEN))
    assert reply.status == 200
    assert reply.body == b'{"success":true,"errors":[],"messages":[],"result":{"actions":[]}}'
    assert [operation.payload for operation in fleet.operations] == [EVENT]


async def test_a_body_in_chunks_arrives_whole(wire: Wire, fleet: ScriptedFleet) -> None:
    head = request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",))
    connection = await wire.connect()
    await connection.send(head)
    for byte in EVENT:
        await connection.send(b"1\r\n" + bytes([byte]) + b"\r\n")
    reply = await (await connection.send(b"0\r\n\r\n")).receive()
    assert reply.status == 200
    assert fleet.operations[0].payload == EVENT
    assert await good(connection)


@pytest.mark.parametrize("path", [EVALUATE, "/api/detectors", "/api/nowhere", "/nowhere"])
async def test_many_early_refusals_leave_connections_usable_and_no_task_behind(wire: Wire, path: str) -> None:
    head = request("POST", path, headers=("Transfer-Encoding: chunked",))
    connections = [await wire.connect() for _ in range(50)]
    for connection in connections:
        await connection.send(head + chunked(*[b"x" * 10] * 40))
    for connection in connections:
        assert (await connection.receive()).status == (404 if path == "/nowhere" else 401)
    for connection in connections:
        assert await good(connection)
    assert await wire.comes_to_rest()


async def test_a_refusal_overtakes_a_body_that_is_still_being_sent(wire: Wire) -> None:
    connection = await wire.connect()
    await connection.send(request("POST", EVALUATE, headers=("Content-Length: 1000",)) + b"x" * 10)
    reply = await connection.receive()
    assert (reply.status, reply.codes) == (401, [1100])
    await connection.send(b"x" * 990)
    assert await good(connection)


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        (EVALUATE, 100_000, 200),
        (EVALUATE, 100_001, 413),
        (EVALUATE + "/batch", 200_000, 200),
        (EVALUATE + "/batch", 200_001, 413),
        ("/api/detectors", 100_001, 413),
        ("/api/detectors", 100_000, 400),
    ],
)
@pytest.mark.parametrize("in_chunks", [False, True])
async def test_size_is_judged_to_the_byte_and_the_rest_is_drained(
    wire: Wire, path: str, size: int, status: int, in_chunks: bool
) -> None:
    body = b" " * size
    if in_chunks:
        head = request("POST", path, token=TOKEN, headers=("Transfer-Encoding: chunked",))
        data = head + chunked(*[body[at : at + 5_000] for at in range(0, size, 5_000)])
    else:
        data = request("POST", path, body, token=TOKEN)
    connection = await wire.connect()
    reply = await (await connection.send(data)).receive()
    assert reply.status == status
    if status == 413:
        assert reply.codes == [1003]
    assert await good(connection)


async def test_a_body_past_the_drain_is_answered_and_cut_off(wire: Wire) -> None:
    connection = await wire.connect()
    head = request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 50000000",))
    await connection.send(head)
    reply = await connection.receive()
    assert (reply.status, reply.codes) == (413, [1003])
    with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012 -- which write fails is open
        async with asyncio.timeout(5):
            while True:
                await connection.send(b"x" * 100_000)
                await asyncio.sleep(0)
    assert await wire.comes_to_rest()


async def test_an_endless_body_past_the_drain_leaves_no_task_behind(fleet: ScriptedFleet) -> None:
    settings = Settings(max_drain_bytes=2_000)
    async with served(create_app(settings, fleet), settings) as wire:
        connections = [await wire.connect() for _ in range(10)]
        for connection in connections:
            await connection.send(request("POST", EVALUATE, headers=("Transfer-Encoding: chunked",)))
            # So many chunks at once that the server's own queue is full whenever we look.
            await connection.send(b"1\r\nx\r\n" * 10_000)
            reply = await connection.receive()
            assert (reply.status, reply.codes) == (401, [1100])
        assert await wire.comes_to_rest()


async def test_a_body_that_nobody_wants_is_ignored(wire: Wire) -> None:
    connection = await wire.connect()
    data = request(
        "GET", "/api/detectors", b"\xff not json" * 1_000, token=TOKEN, headers=("Content-Type: x/y",)
    )
    assert (await (await connection.send(data)).receive()).status == 200
    assert await good(connection)


@pytest.mark.parametrize("path", [EVALUATE, "/api/detectors", "/healthz"])
async def test_two_ways_to_tell_the_end_of_a_body_are_refused_and_the_connection_closed(
    wire: Wire, path: str
) -> None:
    headers = ("Transfer-Encoding: chunked", "Content-Length: 5")
    connection = await wire.connect()
    await connection.send(request("POST", path, token=TOKEN, headers=headers) + chunked(EVENT))
    reply = await connection.receive()
    assert (reply.status, reply.codes) == (400, [1006])
    assert reply.headers["connection"] == "close"
    assert await connection.at_end()


@pytest.mark.parametrize("path", [EVALUATE, "/api/detectors", "/healthz"])
async def test_a_header_block_past_the_cap_is_refused_however_it_comes(wire: Wire, path: str) -> None:
    headers = tuple(f"X-{number}: {'x' * 990}" for number in range(20))
    method = "GET" if path == "/healthz" else "POST"
    data = request(method, path, EVENT, token=TOKEN, headers=headers)
    reply = await wire.once(data)
    assert (reply.status, reply.codes) == (400, [1006])
    in_pieces = await wire.connect()
    for at in range(0, len(data), 1_000):
        await in_pieces.send(data[at : at + 1_000])
        await asyncio.sleep(0)
    assert (await in_pieces.receive()).codes == [1006]


@pytest.mark.parametrize("path", [EVALUATE, f"/api/detectors/{DETECTOR}/rules"])
async def test_a_caller_who_goes_away_cancels_the_work(wire: Wire, fleet: ScriptedFleet, path: str) -> None:
    started = asyncio.Event()

    async def never(*_: object) -> Answer:
        started.set()
        await asyncio.sleep(60)
        return NO_ACTIONS

    fleet.answers = never
    connection = await wire.connect()
    method = "POST" if path == EVALUATE else "GET"
    await connection.send(request(method, path, EVENT, token=TOKEN))
    await started.wait()
    assert await wire.comes_to_rest()
    assert (fleet.cancelled, fleet.under_way) == (1, 0)


async def test_a_caller_who_goes_away_amid_the_body_leaves_nothing(wire: Wire, fleet: ScriptedFleet) -> None:
    connection = await wire.connect()
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 100",)) + b"{")
    await asyncio.sleep(0.02)
    assert await wire.comes_to_rest()
    assert not fleet.operations


async def test_a_body_that_does_not_come_meets_the_deadline(hasty_wire: Wire) -> None:
    data = request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 100",)) + b"{"
    reply = await hasty_wire.once(data)
    assert (reply.status, reply.codes) == (504, [1502])


@pytest.mark.parametrize("path", [EVALUATE, EVALUATE.replace("a", "%61", 1)])
async def test_work_that_does_not_end_meets_the_deadline(
    hasty_wire: Wire, fleet: ScriptedFleet, path: str
) -> None:
    async def never(*_: object) -> Answer:
        await asyncio.sleep(60)
        return NO_ACTIONS

    fleet.answers = never
    connection = await hasty_wire.connect()
    reply = await (await connection.send(request("POST", path, EVENT, token=TOKEN))).receive()
    assert (reply.status, reply.codes) == (504, [1502])
    assert (fleet.cancelled, fleet.under_way) == (1, 0)
    assert await good(connection)


async def test_requests_sent_one_behind_the_other_are_answered_in_order(wire: Wire) -> None:
    connection = await wire.connect()
    one = request("POST", EVALUATE, EVENT, token=TOKEN)
    await connection.send(one + request("GET", "/nowhere") + request("POST", EVALUATE, EVENT) + one)
    assert [(await connection.receive()).status for _ in range(4)] == [200, 404, 401, 200]


async def test_who_asks_before_sending_the_body_is_told_to_go_on(wire: Wire) -> None:
    connection = await wire.connect()
    headers = ("Expect: 100-continue", f"Content-Length: {len(EVENT)}")
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=headers))
    assert (await connection.receive()).status == 100
    assert (await (await connection.send(EVENT)).receive()).status == 200


async def test_head_is_a_method_that_no_path_takes(wire: Wire) -> None:
    connection = await wire.connect()
    reply = await (await connection.send(request("HEAD", token=TOKEN))).receive("HEAD")
    assert (reply.status, reply.headers["allow"], reply.body) == (405, "GET, POST", b"")
    assert await good(connection)


async def test_a_connection_is_let_go_of_when_its_caller_closes_it(wire: Wire, fleet: ScriptedFleet) -> None:
    for _ in range(20):
        await wire.once(request("GET", "/healthz"))
        await wire.once(request("POST", EVALUATE, EVENT, token=TOKEN))
    assert await wire.comes_to_rest()

    async def slow(*_: object) -> Answer:
        await asyncio.sleep(0.02)
        return NO_ACTIONS

    # A caller who has gone by the time that the reply is ready, too.
    fleet.answers = slow
    connection = await wire.connect()
    await connection.send(request("POST", EVALUATE, EVENT, token=TOKEN))
    assert await wire.comes_to_rest()


async def test_the_absolute_form_of_a_target_is_understood(wire: Wire) -> None:
    reply = await wire.once(request("GET", "http://localhost/api/detectors", token=TOKEN))
    assert reply.status == 200
    reply = await wire.once(request("GET", "http://localhost/api/detectors"))
    assert reply.codes == [1100]


@pytest.mark.parametrize(
    ("target", "token", "code"),
    [
        ("//api/detectors", None, 1004),
        ("//api/detectors", TOKEN, 1004),
        ("/api//detectors", TOKEN, 1004),
        ("/api/../api/detectors", None, 1100),
        ("/api/../api/detectors", TOKEN, 1004),
        ("/../api/detectors", TOKEN, 1004),
        ("/api/detectors/.", TOKEN, 1200),
        ("/api/detectors#x", TOKEN, 1004),
        ("/api/detectors;x", TOKEN, 1004),
        ("*", TOKEN, 1004),
        ("api/detectors", TOKEN, 1004),
        ("http://api/detectors", TOKEN, 1004),
        ("/" + "x" * 5_000, TOKEN, 1004),
    ],
)
async def test_targets_are_taken_as_they_are_written(
    wire: Wire, target: str, token: str | None, code: int
) -> None:
    connection = await wire.connect()
    reply = await (await connection.send(request("GET", target, token=token))).receive()
    assert reply.codes == [code]
    assert await good(connection)


async def test_http_1_0_is_answered(wire: Wire) -> None:
    reply = await wire.once(request("GET", token=TOKEN).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert reply.status == 200


async def test_a_host_that_no_router_can_read_does_no_harm(wire: Wire) -> None:
    data = request("GET", token=TOKEN).replace(b"Host: localhost", b"Host: " + b"x" * 100)
    assert (await wire.once(data)).status == 200


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


async def test_bytes_that_are_not_http_end_the_connection(wire: Wire) -> None:
    connection = await wire.connect()
    reply = await (await connection.send(b"\x16\x03\x01 hello\r\n\r\n")).receive()
    assert reply.status == 400
    assert await connection.at_end()
