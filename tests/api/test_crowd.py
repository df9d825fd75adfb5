"""More connections than there is room for: who goes, who stays, and that nobody with a token is kept out."""

import asyncio
from pathlib import Path

import pytest

from api.server import connection
from api.server.connection_limit import Crowd, Place, Ways
from tests.api.conftest import BOOTSTRAP
from tests.api.leaks import EVENT, LOOPS, World, run, world
from tests.api.streaming import NDJSON
from tests.api.wire import Connection, request

pytestmark = pytest.mark.storm

CHUNKED = "Transfer-Encoding: chunked"


class Door:
    """A crowd whose connections are numbers, and those that were cut."""

    def __init__(self, most: int) -> None:
        self.crowd = Crowd(most)
        self.cut: list[int] = []

    def enter(self, number: int) -> Place:
        return self.crowd.enter(Ways(lambda: self.cut.append(number), lambda: None))


def guest(door: Door, number: int) -> Place:
    place = door.enter(number)
    place.hold()
    place.rest()
    return place


def test_the_oldest_that_showed_no_token_makes_room() -> None:
    door = Door(3)
    for number in range(6):
        door.enter(number)
    assert door.cut == [0, 1, 2]
    assert len(door.crowd) == 3


def test_who_showed_a_token_goes_after_all_who_did_not_and_by_the_last_request() -> None:
    door = Door(4)
    first, second = guest(door, 0), guest(door, 1)
    first.hold()
    first.rest()
    for number in range(2, 6):
        door.enter(number)
    assert door.cut == [2, 3]
    # Now the two others are held: what is left to go are those who wait for another request.
    for place in list(door.crowd._strangers):
        place.hold()
    for number in range(6, 8):
        door.enter(number).hold()
    assert door.cut == [2, 3, 1, 0]
    second.leave()


def test_whoever_has_a_request_under_way_stays_and_the_one_who_comes_goes() -> None:
    door = Door(2)
    held = [door.enter(number) for number in range(2)]
    for place in held:
        place.hold()
    door.enter(2)
    door.enter(3)
    assert door.cut == [2, 3]
    held[0].rest()
    door.enter(4)
    assert door.cut == [2, 3, 0]


def test_a_place_that_was_left_or_lost_is_free_once() -> None:
    door = Door(2)
    first = door.enter(0)
    first.leave()
    first.leave()
    first.rest()
    door.enter(1)
    door.enter(2)
    assert door.cut == []
    door.enter(3)
    assert door.cut == [1]
    assert len(door.crowd) == 2


async def connect(given: World, data: bytes = b"") -> Connection:
    caller = Connection(*await asyncio.open_connection("127.0.0.1", given.wire.port))
    caller.writer.write(data.replace(b"DETECTOR", given.detector.encode()))
    return caller


def evaluation(given: World) -> bytes:
    return request(path=f"/api/detectors/{given.detector}/evaluate", body=EVENT, token=BOOTSTRAP)


CROWDS = {
    "silent": b"",
    "half a head": b"POST /api/dete",
    "a probe and then silence": request("GET", "/healthz"),
    "refused bodies": request(path="/api/detectors", headers=(CHUNKED,)) + b"1\r\nx\r\n",
    "unknown tokens": request(path="/api/detectors", headers=(CHUNKED,), token="guess") + b"1\r\nx\r\n",
    "bodies that nobody wants": request("GET", "/healthz", headers=(CHUNKED,)) + b"1\r\nx\r\n",
    "pages that are not taken": request("GET", "/openapi.json") * 100,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("what", CROWDS)
def test_a_crowd_without_a_token_keeps_nobody_out(tmp_path: Path, loop: str, what: str) -> None:
    async def work() -> None:
        async with world(tmp_path, crowd=Crowd(20)) as given:
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
            crowd = []
            for _ in range(15):
                crowd += [await connect(given, CROWDS[what]) for _ in range(10)]
                await asyncio.sleep(0.01)
                # A new caller is served, and so is one who was there before.
                new = await connect(given, evaluation(given))
                assert (await new.receive()).status == 200
                assert (await (await kept.send(evaluation(given))).receive()).status == 200
                await new.close()
                assert len(given.crowd) <= 20
            await streaming.send(b"0\r\n\r\n")
            assert b'{"done":0}' in await streaming.reader.readuntil(b"}\n")
            for each in (*crowd, kept, streaming):
                each.writer.transport.abort()
            await given.comes_back_to(before)

    run(loop, work())


@pytest.mark.parametrize("loop", LOOPS)
def test_past_the_bound_the_descriptors_are_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 1_000)

    async def work() -> None:
        async with world(tmp_path, crowd=Crowd(20), keep_alive_s=1_000) as given:
            before = await given.at_rest()
            crowd = [await connect(given) for _ in range(200)]
            async with asyncio.timeout(20):
                while given.held().descriptors > before.descriptors + len(crowd) + 20:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            closed = 0
            for each in crowd[:-20]:
                assert await each.at_end()
                closed += 1
            assert closed == 180
            for each in crowd:
                each.writer.transport.abort()
            await given.comes_back_to(before)

    run(loop, work())
