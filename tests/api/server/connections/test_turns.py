"""Callers who are busy share the turns of the event loop, and a small request is answered beside them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from api.http.app import Application
from api.server.connection import Connection as Served
from api.server.flow_control import READ_BYTES, REQUESTS_MAX, TURN_BYTES, ReadingTurns, RequestTurns
from api.settings import Settings
from engine.evaluation.wire.events import Answer
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import Operation
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, Wire, request, served

FLOOD = 32
BATCH_BYTES = 2_700_000
"""The size of 10 000 events."""
SMALL = request("POST", EVALUATE, EVENT, token=TOKEN)
LARGE = request("POST", f"/api/detectors/{DETECTOR}/evaluate/batch", b" " * BATCH_BYTES, token=TOKEN)


async def test_those_who_wait_go_on_in_order_a_few_in_each_turn() -> None:
    turns, came = ReadingTurns(), list[int]()
    readers = [partial(came.append, number) for number in range(6)]
    for _ in range(TURN_BYTES // READ_BYTES - 1):
        assert turns.take(readers[0], READ_BYTES)
    for reader in readers:
        assert not turns.take(reader, READ_BYTES)
    for seen in ([0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]):
        await asyncio.sleep(0)
        assert came == seen
    assert turns.take(readers[0], READ_BYTES)


async def test_what_is_read_in_one_turn_is_forgotten_in_the_next() -> None:
    turns, came = ReadingTurns(), list[int]()
    for _ in range(5):
        for _ in range(TURN_BYTES // READ_BYTES - 1):
            assert turns.take(partial(came.append, 0), READ_BYTES)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert came == []


@asynccontextmanager
async def flooded(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Wire, Any]]:
    """Give a server that is sent batches all the time, all refused, and a count of the bytes it has read."""
    read_bytes = 0
    updated = Served.buffer_updated

    def counted(connection: Served, nbytes: int) -> None:
        nonlocal read_bytes
        read_bytes += nbytes
        updated(connection, nbytes)

    async def answer(_: str, operation: Operation) -> Answer:
        if len(operation.payload) < BATCH_BYTES:
            return NO_ACTIONS
        raise DetectorUnavailable(1401, "too many wait", 1.0)

    async def flooding(connection: Any) -> None:
        while True:
            await connection.send(LARGE)
            assert (await connection.receive()).status == 429

    monkeypatch.setattr(Served, "buffer_updated", counted)
    scripted.answers = answer
    settings = Settings()
    async with served(Application(settings, scripted), settings) as wire, asyncio.TaskGroup() as tasks:
        flood = [tasks.create_task(flooding(await wire.connect())) for _ in range(FLOOD)]
        while read_bytes < 10 * TURN_BYTES:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        yield wire, lambda: read_bytes
        for task in flood:
            task.cancel()


@pytest.mark.storm
@pytest.mark.parametrize("asked", [SMALL, request("GET", "/healthz")], ids=["evaluation", "healthz"])
async def test_little_of_a_flood_is_read_before_a_small_request_is_answered(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, asked: bytes
) -> None:
    beside_bytes: list[int] = []
    async with flooded(scripted, monkeypatch) as (wire, read_bytes):
        connection = await wire.connect()
        for _ in range(20):
            before_bytes = read_bytes()
            await connection.send(asked)
            assert (await connection.receive()).status == 200
            beside_bytes.append(read_bytes() - before_bytes)
    # If all took part in every turn, it would be twice as much, and far more on a loop that reads on.
    assert sorted(beside_bytes)[10] < 8 * TURN_BYTES


async def test_requests_that_wait_begin_in_order_half_of_them_first_ones() -> None:
    turns, begun = RequestTurns(), list[str]()
    half = REQUESTS_MAX // 2
    later = [f"later {number}" for number in range(4 * REQUESTS_MAX)]
    first = [f"first {number}" for number in range(half + 1)]

    async def begin(name: str) -> None:
        await turns.begin(is_first=name in first)
        begun.append(name)

    tasks = [asyncio.ensure_future(begin(name)) for name in (*later, "gone", *first)]
    await asyncio.sleep(0)
    assert begun == later[:REQUESTS_MAX]
    tasks[len(later)].cancel()
    await asyncio.wait(tasks)
    second, third = begun[REQUESTS_MAX : 2 * REQUESTS_MAX], begun[2 * REQUESTS_MAX : 3 * REQUESTS_MAX]
    assert sorted(second) == sorted([*first[:half], *later[REQUESTS_MAX:][:half]])
    # Where none of the first ones is left, the others have the turn to themselves.
    assert third.count(first[half]) == 1
    assert [name for name in begun if name not in first] == later
    assert len(begun) == len(tasks) - 1


@pytest.mark.storm
async def test_few_others_are_answered_before_a_new_caller(scripted: ScriptedBackend) -> None:
    callers, settings = 400, Settings()
    application, begun = Application(settings, scripted), 0
    asked = request("GET", "/healthz")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun
        begun += 1
        await application(scope, receive, send)

    async def asking(connection: Any) -> None:
        while True:
            assert (await (await connection.send(asked)).receive()).status == 200

    app.end_streams = application.end_streams  # type: ignore[attr-defined]
    beside: list[int] = []
    async with served(app, settings) as wire, asyncio.TaskGroup() as tasks:
        connections = [await wire.connect() for _ in range(callers)]
        busy = [tasks.create_task(asking(connection)) for connection in connections]
        for _ in range(3):
            new = await wire.connect()
            before = begun
            await new.send(asked)
            assert (await new.receive()).status == 200
            beside.append(begun - before)
        for task in busy:
            task.cancel()
    # If all took part in every turn, it would be as many as there are callers.
    assert sorted(beside)[1] < callers // 2
