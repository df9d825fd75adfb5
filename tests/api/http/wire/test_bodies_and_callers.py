"""What only shows on real sockets: bodies that are refused early, framing, callers who go away."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.http.app import Application
from api.http.request import timeout
from api.settings import Settings
from engine.evaluation.wire.events import Answer
from tests.api.http.wire.connections import good
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, Wire, chunked, request, served


@pytest.fixture
async def hasty_wire(scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    """The same as `wire`, with little time for a request."""
    monkeypatch.setattr(timeout, "BACKSTOP_S", 0.1)
    settings = Settings(deadline_s=0.1)
    async with served(Application(settings, scripted), settings) as wire:
        yield wire


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
async def test_size_is_limited_to_the_byte_and_the_rest_is_discarded(
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


async def test_a_body_past_the_discard_is_answered_and_cut_off(wire: Wire) -> None:
    connection = await wire.connect()
    head = request("POST", EVALUATE, token=TOKEN, headers=("Content-Length: 50000000",))
    await connection.send(head)
    reply = await connection.receive()
    assert (reply.status, reply.codes) == (413, [1003])
    with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012 -- which write fails is open
        async with asyncio.timeout(5):
            # Much less than the head announces, and more than systems hold of it.
            for _ in range(250):
                await connection.send(b"x" * 100_000)
                await asyncio.sleep(0)
    assert await wire.comes_to_rest()


async def test_an_endless_body_past_the_discard_leaves_no_task_behind(scripted: ScriptedBackend) -> None:
    settings = Settings(max_discard_bytes=2_000)
    async with served(Application(settings, scripted), settings) as wire:
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
@pytest.mark.parametrize("pause_s", [0, 0.15])
async def test_a_caller_who_goes_away_cancels_the_work(
    wire: Wire, scripted: ScriptedBackend, path: str, pause_s: float
) -> None:
    started = asyncio.Event()

    async def never(*_: object) -> Answer:
        started.set()
        await asyncio.sleep(60)
        return NO_ACTIONS

    scripted.answers = never
    connection = await wire.connect()
    body = EVENT if path == EVALUATE else b'{"name": "n", "condition": "a == 1"}'
    data = request("POST", path, body, token=TOKEN)
    await connection.send(data[:-1])
    await asyncio.sleep(pause_s)
    await connection.send(data[-1:])
    await started.wait()
    await connection.close()
    assert await wire.comes_to_rest()
    assert (scripted.cancelled, scripted.under_way) == (1, 0)


@pytest.mark.parametrize("path", [EVALUATE, EVALUATE.replace("a", "%61", 1)])
async def test_work_that_does_not_end_meets_the_deadline(
    hasty_wire: Wire, scripted: ScriptedBackend, path: str
) -> None:
    async def never(*_: object) -> Answer:
        await asyncio.sleep(60)
        return NO_ACTIONS

    scripted.answers = never
    connection = await hasty_wire.connect()
    reply = await (await connection.send(request("POST", path, EVENT, token=TOKEN))).receive()
    assert (reply.status, reply.codes) == (504, [1502])
    assert (scripted.cancelled, scripted.under_way) == (1, 0)
    assert await good(connection)


async def test_who_asks_before_sending_the_body_is_told_to_go_on(wire: Wire) -> None:
    connection = await wire.connect()
    headers = ("Expect: 100-continue", f"Content-Length: {len(EVENT)}")
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=headers))
    assert (await connection.receive()).status == 100
    assert (await (await connection.send(EVENT)).receive()).status == 200
