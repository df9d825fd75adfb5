"""Bodies over sockets that stop short: others are not kept out, and nothing stays behind."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from api.http.app import Application
from api.http.body import memory as body_memory
from api.http.body.memory import Reservation
from api.settings import Settings
from engine.evaluation.wire.events import Answer
from engine.runtime.contract.requests.operations import Operation
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedBackend
from tests.api.streaming import stream
from tests.api.wire import EVALUATE, Connection, Wire, request, served

MIB = 1024 * 1024
BODY_BYTES = 150_000
SETTINGS = Settings(max_body_bytes=200_000, max_batch_body_bytes=200_000, max_reading_bytes=MIB)


@pytest.fixture
async def served_app(scripted: ScriptedBackend) -> AsyncIterator[tuple[Wire, Application]]:
    app = Application(SETTINGS, scripted)
    async with served(app, SETTINGS) as wire:
        yield wire, app


def partly(kind: str, sent: int = BODY_BYTES - 1) -> bytes:
    """Return a request whose body of 150 000 bytes is cut off."""
    if kind == "length":
        return (
            request("POST", EVALUATE, token=TOKEN, headers=(f"Content-Length: {BODY_BYTES}",)) + b" " * sent
        )
    if kind == "slow path":
        headers = (f"Content-Length: {BODY_BYTES}",)
        path = f"/api/detectors/{DETECTOR}/rules"
        return request("POST", path, token=TOKEN, headers=headers) + b" " * sent
    headers = ("Transfer-Encoding: chunked",)
    path = EVALUATE
    if kind == "lines":
        headers = (*headers, "Content-Type: application/x-ndjson")
        path = f"{EVALUATE}/batch"
    return request("POST", path, token=TOKEN, headers=headers) + b"%x\r\n%s\r\n" % (sent, b"{" * sent)


async def whole(wire: Wire, size: int) -> int:
    """Send a body of this many bytes in pieces, and return the status of the reply."""
    connection = await wire.connect()
    await connection.send(request("POST", EVALUATE, token=TOKEN, headers=(f"Content-Length: {size}",)))
    for at in range(0, size, 60_000):
        await asyncio.sleep(0.001)
        await connection.send(b" " * min(60_000, size - at))
    return (await connection.receive()).status


async def refused(connection: Connection) -> bool:
    """Return whether a connection is told 1401 within a moment."""
    try:
        async with asyncio.timeout(0.05):
            reply = await connection.receive()
    except TimeoutError:
        return False
    assert (reply.status, reply.codes, reply.headers["retry-after"]) == (429, [1401], "1")
    return True


@pytest.mark.parametrize("kind", ["length", "slow path", "chunked", "lines"])
async def test_bodies_that_stop_short_do_not_keep_others_out(
    served_app: tuple[Wire, Application], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    wire, app = served_app
    most = 0
    hold = body_memory._Share.hold

    def noted(share: body_memory._Share, reservation: Reservation, bytes_: int) -> None:
        nonlocal most
        hold(share, reservation, bytes_)
        most = max(most, app.memory.held_bytes)

    monkeypatch.setattr(body_memory._Share, "hold", noted)
    connections = [await wire.connect() for _ in range(30)]
    for connection in connections:
        await connection.send(partly(kind))
    await asyncio.sleep(0.1)
    # Small ones have a share of their own.
    assert await whole(wire, 50_000) == 200
    monkeypatch.setattr(body_memory, "STALLED_S", 0.0)
    for _ in range(10):
        assert await whole(wire, BODY_BYTES) == 200
    assert MIB // 2 < most <= MIB
    if kind != "lines":
        assert sum([await refused(connection) for connection in connections]) >= 25
    for connection in connections:
        await connection.close()
    assert await wire.comes_to_rest()
    assert app.memory.held_bytes == 0


async def test_a_stream_that_loses_its_memory_says_so_at_its_end(
    served_app: tuple[Wire, Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, app = served_app
    one = await stream(wire)
    await one.send(b"{}\n" + b"{" * 60_000)
    await one.begun()
    assert await one.next() == {"actions": []}
    for _ in range(2):
        await one.send(b"{" * 45_000)
    while app.memory.held_bytes != BODY_BYTES:  # noqa: ASYNC110 -- there is no event for it
        await asyncio.sleep(0.001)
    monkeypatch.setattr(body_memory, "STALLED_S", 0.0)
    others = [await wire.connect() for _ in range(6)]
    for other in others:
        await other.send(partly("length"))
    closing = await one.next()
    assert (closing["done"], [entry["code"] for entry in closing["errors"]]) == (1, [1401])


async def test_a_body_that_is_decoded_here_counts_until_it_is_answered(
    served_app: tuple[Wire, Application], scripted: ScriptedBackend
) -> None:
    wire, app = served_app
    go = asyncio.Event()

    async def held(_: str, __: Operation) -> Answer:
        await go.wait()
        return NO_ACTIONS

    scripted.answers = held
    rules, event = await wire.connect(), await wire.connect()
    body = b'{"name": "n", "condition": "a == 1"}'.rjust(BODY_BYTES)
    await rules.send(request("POST", f"/api/detectors/{DETECTOR}/rules", body, token=TOKEN))
    await event.send(request("POST", EVALUATE, body, token=TOKEN))
    while scripted.under_way < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    # The event waits in the queue of its detector, which has a bound of its own.
    assert app.memory.held_bytes == BODY_BYTES
    go.set()
    for connection in (rules, event):
        assert (await connection.receive()).status == 200
    assert app.memory.held_bytes == 0


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        *(("length", ends) for ends in ("the caller", "the deadline", "others")),
        *(("slow path", "the deadline"), ("chunked", "others"), ("lines", "the caller")),
    ],
)
async def test_a_body_that_ends_short_leaves_nothing_even_without_the_garbage_collector(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, kind: str, ends: str
) -> None:
    """Errors hold frames; cycles of them kept gigabytes until the collector came, which is seldom."""
    settings = Settings(
        max_body_bytes=200_000,
        max_batch_body_bytes=200_000,
        max_reading_bytes=MIB if ends == "others" else 64 * MIB,
        deadline_s=0.3 if ends == "the deadline" else 30,
    )
    async with served(Application(settings, scripted), settings) as wire:
        await whole(wire, BODY_BYTES)
        connections = [await wire.connect() for _ in range(30)]
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for connection in connections:
                await connection.send(partly(kind))
            if ends == "the deadline":
                await asyncio.sleep(0.5)
            await wire.comes_to_rest()
            connections.clear()
            left_bytes = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()
    # Each connection leaves some 20 KiB of cycles.
    assert left_bytes < 30 * BODY_BYTES / 5


async def test_a_connection_that_is_kept_holds_nothing_of_its_first_request(
    served_app: tuple[Wire, Application], scripted: ScriptedBackend
) -> None:
    wire, _ = served_app
    tracemalloc.start()
    try:
        kept = [await wire.connect() for _ in range(30)]
        first = request(path=EVALUATE, body=b" " * BODY_BYTES, token=TOKEN)
        for connection in kept:
            assert (await (await connection.send(first)).receive()).status == 200
        scripted.operations.clear()
        gc.collect()
        left_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left_bytes < len(kept) * BODY_BYTES / 5
