"""Heads in many pieces: each byte is searched once, and all unfinished heads are bounded together."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.http.app import Application
from api.server.connection import Connection as Served
from api.server.limits import TURN_BYTES, ConnectionLimit, UnfinishedHeads
from api.server.requests import FIELDS_MAX, TARGET_BYTES_MAX, RequestError, RequestReader, read_head
from api.settings import Settings
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, request, served
from tests.work_growth import grows_linearly

HEAD_BYTES_MAX = 1_000_000
BEGUN = b"GET / HTTP/1.1\r\nHost: a\r\nX: "


class Counted(bytearray):
    """Bytes that count how many of them were searched for the end of a head."""

    searched_bytes = 0

    def find(self, *arguments: Any) -> int:
        Counted.searched_bytes += len(self) - arguments[1]
        return super().find(*arguments)


def test_an_end_is_searched_only_in_what_has_come_since() -> None:
    data = Counted(BEGUN)
    searched = Counted.searched_bytes = 0
    for _ in range(10_000):
        assert read_head(data, HEAD_BYTES_MAX, 0, searched) is None
        searched = len(data)
        data += b"x"
    assert Counted.searched_bytes <= 4 * 10_000 + 2 * TARGET_BYTES_MAX
    data += b"\r\n\r\n"
    found = read_head(data, HEAD_BYTES_MAX, 0, searched)
    assert found is not None
    assert found[1] == len(data)


@pytest.mark.parametrize("unit", [b"x", b"\r", b"\r\nX: y"])
def test_a_head_in_single_bytes_takes_time_that_is_linear_in_them(unit: bytes) -> None:
    def work(size: int) -> None:
        reader = RequestReader(HEAD_BYTES_MAX)
        reader.add(BEGUN)
        for at in range(size):
            reader.add(unit[at % len(unit) :][:1])
            assert reader.read_head() is None

    assert grows_linearly(work, 8_000)


def test_what_waits_behind_a_request_takes_time_that_is_linear_in_it() -> None:
    """The application is slow; its caller sends on, a byte at a time."""

    def work(size: int) -> None:
        reader = RequestReader(HEAD_BYTES_MAX)
        reader.add(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nG")
        assert reader.read_head() is not None
        for _ in range(size):
            reader.add(b"G")
        assert reader.unread_bytes == 1 + size

    assert grows_linearly(work, 60_000)


def head_of(line: bytes = b"GET / HTTP/1.1", fields: int = 1) -> bytes:
    return line + b"\r\nHost: a" + b"\r\na: b" * (fields - 1) + b"\r\n\r\n"


def refused_with(data: bytes) -> int | None:
    try:
        read_head(data, HEAD_BYTES_MAX)
    except RequestError as error:
        return error.status
    return None


def test_targets_and_fields_are_bounded_to_the_byte_and_to_the_field() -> None:
    longest = b"/?" + b"a" * (TARGET_BYTES_MAX - 2)
    assert refused_with(head_of(b"GET %b HTTP/1.1" % longest)) is None
    assert refused_with(head_of(b"GET %ba HTTP/1.1" % longest)) == 414
    assert refused_with(head_of(fields=FIELDS_MAX)) is None
    assert refused_with(head_of(fields=FIELDS_MAX + 1)) == 431
    # Such a line is not kept until its end.
    assert refused_with(b"GET " + longest) is None
    assert refused_with(b"GET " + longest + b"a" * 1_000) == 414
    in_pieces = RequestReader(HEAD_BYTES_MAX)
    with pytest.raises(RequestError) as caught:  # noqa: PT012 -- which piece is refused is open
        for _ in range(10):
            in_pieces.add(b"G" * 1_000)
            in_pieces.read_head()
    assert caught.value.status == 414
    assert refused_with(BEGUN + b"a" * 20_000) is None


class Head:
    """An unfinished head, which may be lost."""

    def __init__(self) -> None:
        self.is_lost = False

    def lose_head(self) -> None:
        self.is_lost = True


def test_the_oldest_of_too_many_unfinished_heads_are_lost() -> None:
    heads, held = UnfinishedHeads(100), [Head() for _ in range(5)]
    for head in held[:3]:
        heads.hold(head.lose_head, 30)
    heads.hold(held[1].lose_head, 40)
    assert (heads.held_bytes, [head.is_lost for head in held]) == (100, [False] * 5)
    heads.hold(held[3].lose_head, 61)
    assert (heads.held_bytes, [head.is_lost for head in held]) == (91, [True, True, False, False, False])
    heads.hold(held[2].lose_head, 0)
    heads.hold(held[0].lose_head, 0)
    assert heads.held_bytes == 61
    heads.hold(held[4].lose_head, 101)
    assert (heads.held_bytes, [head.is_lost for head in held]) == (0, [True, True, False, True, True])


async def test_unfinished_heads_take_no_more_than_their_share(scripted: ScriptedBackend) -> None:
    limit = ConnectionLimit(100, 400_000)
    settings = Settings()
    async with served(Application(settings, scripted), settings, limit) as wire:
        begun = [await wire.connect() for _ in range(12)]
        for connection in begun:
            await connection.send(BEGUN + b"x" * 9_000)
            await asyncio.sleep(0.01)
            assert limit.heads.held_bytes <= 100_000
        await connection.send(b"x" * 100)
        assert await begun[0].at_end()
        # The others are complete as soon as they end, and nothing else lost its memory.
        reply = await (await begun[-1].send(b"\r\n\r\n")).receive()
        assert reply.status == 307
        assert (await wire.once(request("POST", EVALUATE, EVENT, token=TOKEN))).status == 200
        for connection in begun:
            await connection.close()
        assert await wire.comes_to_rest()
    assert (limit.heads.held_bytes, limit.ahead.held_bytes) == (0, 0)


@contextmanager
def heads_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the number of heads that were read in each turn of the loop."""
    turns = [0]
    advance = Served._advance

    def counted(connection: Served) -> None:
        if not turns[-1]:
            asyncio.get_running_loop().call_soon(turns.append, 0)
        turns[-1] += 1
        advance(connection)

    monkeypatch.setattr(Served, "_advance", counted)
    yield turns


async def test_no_more_is_understood_in_a_turn_of_the_loop_than_its_share(
    scripted: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many callers send at once: reading costs little, and what is read waits for its turn."""
    callers, head = 200, request("GET", "/healthz", headers=("X: " + "x" * 10_000,))
    settings = Settings()
    async with served(Application(settings, scripted), settings) as wire:
        connections = [await wire.connect() for _ in range(callers)]
        for connection in connections:
            connection.writer.write(b"G")
        await asyncio.sleep(0.1)
        with heads_read_in_turns(monkeypatch) as turns:
            for connection in connections:
                connection.writer.write(head[1:])
            for connection in connections:
                assert (await connection.receive("GET")).status == 200
        # The count of a turn ends a little later than the turn itself.
        assert max(turns) <= 2 * (TURN_BYTES // 10_000) < callers
        assert sum(turns) >= callers


@pytest.mark.parametrize("callers", [1, 120])
async def test_what_waits_for_its_turn_is_answered_to_callers_who_have_closed_their_half(
    scripted: ScriptedBackend, callers: int
) -> None:
    """Their requests count as given up, as ever; none is lost on the way, or leaves anything behind."""
    begun = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun
        begun += scope["type"] == "http"
        await Application(settings, scripted)(scope, receive, send)

    settings = Settings()
    app.end_streams = lambda: None
    async with served(app, settings) as wire:
        begun = 0
        connections = [await wire.connect() for _ in range(callers)]
        for connection in connections:
            connection.writer.write(request("GET", "/healthz", headers=("X: " + "x" * 10_000,)))
            connection.writer.write_eof()
        for connection in connections:
            assert await connection.reader.read() is not None
        assert begun == callers
        assert await wire.comes_to_rest()
