"""Connections past the limit: which are evicted, and that no caller with a token is kept out."""

import asyncio
from pathlib import Path

import pytest

from api.server import connection
from api.server.limits import ConnectionLimit, Slot
from tests.api.conftest import BOOTSTRAP
from tests.api.leaks import EVENT, World, in_each_loop, world
from tests.api.streaming import NDJSON
from tests.api.wire import Connection, request

CHUNKED = "Transfer-Encoding: chunked"


class Numbered:
    """A limit whose connections are numbers, and those that were evicted."""

    def __init__(self, connections_max: int) -> None:
        self.limit = ConnectionLimit(connections_max)
        self.evicted: list[int] = []

    def enter(self, number: int) -> Slot:
        return self.limit.enter(lambda: self.evicted.append(number), lambda: None)

    def idle(self, number: int) -> Slot:
        slot = self.enter(number)
        slot.mark_authenticated()
        slot.set_idle()
        return slot


def test_the_oldest_unauthenticated_connection_is_evicted_first() -> None:
    given = Numbered(3)
    for number in range(6):
        given.enter(number)
    assert given.evicted == [0, 1, 2]
    assert len(given.limit) == 3


def test_an_idle_connection_is_evicted_after_all_unauthenticated_ones_and_by_its_last_request() -> None:
    given = Numbered(4)
    first, second = given.idle(0), given.idle(1)
    first.mark_authenticated()
    first.set_idle()
    for number in range(2, 6):
        given.enter(number)
    assert given.evicted == [2, 3]
    # Now the two others are held: what is left to go are those who wait for another request.
    for slot in list(given.limit._unauthenticated):
        slot.mark_authenticated()
    for number in range(6, 8):
        given.enter(number).mark_authenticated()
    assert given.evicted == [2, 3, 1, 0]
    second.leave()


def test_a_connection_with_a_request_under_way_is_never_evicted() -> None:
    given = Numbered(2)
    held = [given.enter(number) for number in range(2)]
    for slot in held:
        slot.mark_authenticated()
    given.enter(2)
    given.enter(3)
    assert given.evicted == [2, 3]
    held[0].set_idle()
    given.enter(4)
    assert given.evicted == [2, 3, 0]


def test_a_slot_is_freed_once() -> None:
    given = Numbered(2)
    first = given.enter(0)
    first.leave()
    first.leave()
    first.set_idle()
    given.enter(1)
    given.enter(2)
    assert given.evicted == []
    given.enter(3)
    assert given.evicted == [1]
    assert len(given.limit) == 2


async def connect(given: World, data: bytes = b"") -> Connection:
    caller = Connection(*await asyncio.open_connection("127.0.0.1", given.wire.port))
    caller.writer.write(data.replace(b"DETECTOR", given.detector.encode()))
    return caller


def evaluation(given: World) -> bytes:
    return request(path=f"/api/detectors/{given.detector}/evaluate", body=EVENT, token=BOOTSTRAP)


IDLERS = {
    "silent": b"",
    "half a head": b"POST /api/dete",
    "a probe and then silence": request("GET", "/healthz"),
    "refused bodies": request(path="/api/detectors", headers=(CHUNKED,)) + b"1\r\nx\r\n",
    "unknown tokens": request(path="/api/detectors", headers=(CHUNKED,), token="guess") + b"1\r\nx\r\n",
    "bodies that nobody wants": request("GET", "/healthz", headers=(CHUNKED,)) + b"1\r\nx\r\n",
    "pages that are not taken": request("GET", "/openapi.json") * 100,
}


@pytest.mark.storm
@pytest.mark.parametrize("what", IDLERS)
@in_each_loop
async def test_callers_without_a_token_keep_nobody_out(tmp_path: Path, what: str) -> None:
    async with world(tmp_path, limit=ConnectionLimit(20)) as given:
        before = await given.at_rest()
        kept = await connect(given, evaluation(given))
        assert (await kept.receive()).status == 200
        stream = request(
            path=f"/api/detectors/{given.detector}/evaluate/batch",
            token=BOOTSTRAP,
            headers=(CHUNKED, NDJSON),
        )
        streaming = await connect(given, stream)
        assert (await streaming.receive()).status == 200
        others = []
        for _ in range(15):
            others += [await connect(given, IDLERS[what]) for _ in range(10)]
            await asyncio.sleep(0.01)
            # A new caller is served, and so is one who was there before.
            new = await connect(given, evaluation(given))
            assert (await new.receive()).status == 200
            assert (await (await kept.send(evaluation(given))).receive()).status == 200
            await new.close()
            assert len(given.limit) <= 20
        await streaming.send(b"0\r\n\r\n")
        assert b'{"done":0}' in await streaming.reader.readuntil(b"}\n")
        for each in (*others, kept, streaming):
            each.writer.transport.abort()
        await given.comes_back_to(before)


@pytest.mark.storm
@in_each_loop
async def test_past_the_bound_the_descriptors_are_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 1_000)

    async with world(tmp_path, limit=ConnectionLimit(20), keep_alive_s=1_000) as given:
        before = await given.at_rest()
        others = [await connect(given) for _ in range(200)]
        async with asyncio.timeout(20):
            while given.held().descriptors > before.descriptors + len(others) + 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        closed = 0
        for each in others[:-20]:
            assert await each.at_end()
            closed += 1
        assert closed == 180
        for each in others:
            each.writer.transport.abort()
        await given.comes_back_to(before)
