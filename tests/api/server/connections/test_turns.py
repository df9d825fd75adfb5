"""Callers who are busy share the turns of the event loop, and a small request is answered beside them."""

import asyncio
from functools import partial
from typing import Any

import pytest

from api.http.app import Application
from api.server.limits import READ_BYTES, REQUESTS_MAX, TURN_BYTES, ReadingTurns, RequestTurns
from api.settings import Settings
from tests.api.scripted import ScriptedBackend
from tests.api.wire import request, served


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
