"""Loads are sent when they are due and counted as they were answered; what is no success is no figure."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from tests.bench.front import front
from tests.bench.front.load.load import (
    NS_A_S,
    ClosedLoop,
    OpenLoop,
    Place,
    Schedule,
    Stream,
    Unexpected,
    callers,
)
from tests.bench.front.load.wire import Garbled
from tests.bench.front.load.world import head
from tests.bench.measuring import processes
from tests.bench.measuring.effort import FULL, TINY
from tests.process_table import family

REQUEST = head("/", "token", "application/json", 2) + b"{}"

Answer = Callable[[bytes], Awaitable[bytes]]
"""Gives the response to a request."""


def response(status: int = 200, body: bytes = b"{}") -> bytes:
    return b"HTTP/1.1 %d \r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[Place]:
    """A server that answers each request by a function, in two pieces."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await reader.read(len(REQUEST)):
            data = await answer(request)
            writer.write(data[:20])
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(data[20:])

    async with listening(serve) as place:
        yield place


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Place]:
    """A server; at the end all its connections have ended."""
    serving = set()

    async def tended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    listener = await asyncio.start_server(tended, "127.0.0.1", 0)
    async with listener:
        yield Place(*listener.sockets[0].getsockname()[:2])
        await asyncio.gather(*serving)


class Counting:
    """Answers, and counts what it was asked and how much of that at a time."""

    def __init__(self, delay_s: float = 0.0, answers: list[bytes] | None = None) -> None:
        self.asked = self.under_way = self.most = 0
        self.delay_s = delay_s
        self.answers = answers or [response()]

    async def __call__(self, request: bytes) -> bytes:
        assert request == REQUEST
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(self.delay_s)
        self.under_way -= 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


@pytest.mark.parametrize("per_s", [0.5, 3, 500, 777.7])
def test_a_schedule_is_even_and_what_is_due_is_what_its_time_has_come_for(per_s: float) -> None:
    schedule = Schedule(1_000, per_s, 50)
    times = [schedule.due_ns(number) for number in range(50)]
    assert times[0] == 1_000
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) - min(gaps) <= 1
    assert abs(times[-1] - 1_000 - 49 * NS_A_S / per_s) <= 1
    assert schedule.due(999) == 0
    for number, time_ns in enumerate(times):
        assert schedule.due(time_ns - 1) == number
        assert schedule.due(time_ns) == number + 1
    assert schedule.due(times[-1] + 10**12) == 50


async def test_a_closed_loop_keeps_each_caller_busy_with_one_request_and_counts_all_answers() -> None:
    counting = Counting()
    async with server(counting) as place, callers(place, 3) as made:
        tally = await ClosedLoop(itertools.repeat(REQUEST)).run(made, 0.1)
    assert tally.kinds == {"200": counting.asked}
    assert counting.most == 3
    assert len(tally.took_ns) == counting.asked
    # What was under way when the time was over came later.
    assert counting.asked - 3 <= tally.in_time < counting.asked
    assert tally.per_s == tally.in_time / 0.1


async def test_a_load_whose_requests_run_out_is_over_then_and_its_rate_is_that_of_the_time_it_took() -> None:
    counting = Counting(delay_s=0.01)
    async with server(counting) as place, callers(place, 2) as made:
        tally = await ClosedLoop(itertools.repeat(REQUEST, 10)).run(made, 60.0)
    assert tally.kinds == {"200": 10}
    assert 0.04 <= tally.seconds < 60
    assert tally.in_time == 9


async def test_an_open_loop_sends_what_is_due_and_charges_for_what_had_to_wait() -> None:
    counting = Counting(delay_s=0.02)
    async with server(counting) as place, callers(place, 1) as made:
        loop = OpenLoop(itertools.repeat(REQUEST))
        for _ in range(2):
            tally = await loop.run(made, 200, 0.1)
            assert tally.kinds == {"200": 20}
    assert counting.asked == 40
    assert counting.most == 1
    # One connection answers 50/s at best, so the last of 200/s waits for nearly all before it.
    assert max(tally.took_ns) > 0.2 * NS_A_S
    assert tally.in_time < 20


@pytest.mark.parametrize("bad", [response(500), response(503), response(429, b'{"errors":[{"code":1401}]}')])
async def test_an_answer_that_is_no_success_is_an_error(bad: bytes) -> None:
    async with server(Counting(answers=[response(), response(), bad])) as place:
        async with callers(place, 1) as made:
            with pytest.raises(Unexpected, match="status"):
                await ClosedLoop(itertools.repeat(REQUEST)).run(made, 5.0)
        async with callers(place, 1) as made:
            with pytest.raises(Unexpected, match="status"):
                await OpenLoop(itertools.repeat(REQUEST)).run(made, 100, 5.0)


async def test_what_is_no_response_and_a_connection_that_ends_are_errors() -> None:
    async with server(Counting(answers=[response() + b"HTTP"])) as place, callers(place, 1) as made:
        with pytest.raises(Garbled):
            await ClosedLoop(itertools.repeat(REQUEST)).run(made, 5.0)

    async def gone(_: bytes) -> bytes:
        raise ConnectionError

    async with server(gone) as place, callers(place, 1) as made:
        with pytest.raises(Unexpected, match="closed a connection"):
            await ClosedLoop(itertools.repeat(REQUEST)).run(made, 5.0)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("count", [9, 100_000])
@pytest.mark.parametrize(("lied", "fails"), [(0, False), (1, True)])
async def test_a_stream_is_held_to_the_count_of_its_last_line(lied: int, fails: bool, count: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n")
        lines = 0
        while size := int(await reader.readuntil(b"\r\n"), 16):
            count = (await reader.readexactly(size + 2)).count(b"{")
            lines += count
            writer.write(chunked(b"{}\n" * count))
        writer.write(chunked(b'{"done":%d}\n' % (lines + lied)) + b"0\r\n\r\n")

    async with listening(serve) as place:
        pieces = itertools.repeat(b"{}\n" * 10, count)
        stream = Stream(head("/", "token", "application/x-ndjson", None), pieces, 10, 4)
        within_s = 60.0 if count == 9 else 0.5
        if fails:
            with pytest.raises(Unexpected, match="done"):
                await stream.run(place, within_s)
        else:
            tally = await stream.run(place, within_s)
            assert tally.kinds["200"] % 10 == 0
            assert 0 < tally.in_time <= tally.kinds["200"]
            if count == 9:
                assert tally.kinds["200"] == 90
                assert tally.seconds < within_s


async def test_a_place_is_read_from_a_url() -> None:
    assert Place.of("http://127.0.0.1:8080") == ("127.0.0.1", 8080)


def test_a_process_is_known_by_its_parent_its_time_and_its_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), child.pid} <= family(os.getppid())
        assert family(child.pid) == {child.pid}
        child.communicate(b"\n")
    before = processes.cpu_s(os.getpid())
    while processes.cpu_s(os.getpid()) == before:
        sum(range(10_000))
    assert processes.peak_bytes(os.getpid()) > 2**20
    assert 0 <= processes.waited_s(os.getpid()) < time.monotonic()


def test_rows_are_told_of_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found(dict[str, float]):
        def __missing__(self, _: str) -> float:
            return 2.0

    asked = []

    def call(module: str, function: str, **arguments: object) -> dict[str, float]:
        asked.append(json.dumps([module, function, arguments]))
        return Found()

    monkeypatch.setattr(front, "call", call)
    rows = [row for part in front.parts(FULL) for row in part.measure()]
    assert len({row.key for row in rows}) == len(rows) == 18
    assert len(asked) == len(front.parts(FULL)) == len(front.parts(TINY)) + 2
    assert all(row.ratio > 0 for row in rows)
