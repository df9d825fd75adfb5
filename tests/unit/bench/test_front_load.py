"""A load is counted as it was answered, its responses are read as they were sent; no success is no figure."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from tests.bench.front import front
from tests.bench.front.load import world
from tests.bench.front.load.load import ClosedLoop, Place, Unexpected, callers
from tests.bench.front.load.wire import Garbled, Response, ResponseReader
from tests.bench.measuring.effort import FULL

REQUEST = world.head("/", "token", "application/json", 2) + b"{}"

Answer = Callable[[bytes], Awaitable[bytes]]
"""Gives the response to a request."""


def response(status: int = 200, body: bytes = b"{}") -> bytes:
    return b"HTTP/1.1 %d \r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[Place]:
    """A server that answers each request by a function, in two pieces."""
    serving = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        with suppress(ConnectionError):
            while request := await reader.read(len(REQUEST)):
                data = await answer(request)
                writer.write(data[:20])
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(data[20:])
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
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
    async with server(Counting(delay_s=0.01)) as place, callers(place, 2) as made:
        tally = await ClosedLoop(itertools.repeat(REQUEST, 10)).run(made, 60.0)
    assert tally.kinds == {"200": 10}
    assert tally.seconds < 60
    assert tally.in_time == 9


async def gone(_: bytes) -> bytes:
    raise ConnectionError


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (Counting(answers=[response(), response(503)]), Unexpected, "status"),
        (Counting(answers=[response(429, b'{"errors":[{"code":1401}]}')]), Unexpected, "status"),
        (Counting(answers=[response() + b"HTTP"]), Garbled, "more than"),
        (gone, Unexpected, "closed a connection"),
    ],
)
async def test_an_answer_that_is_no_success_is_an_error(
    answer: Answer, error: type[Exception], said: str
) -> None:
    async with server(answer) as place, callers(place, 1) as made:
        with pytest.raises(error, match=said):
            await ClosedLoop(itertools.repeat(REQUEST)).run(made, 5.0)


@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 5_000, b"\r\n\r\ncontent-length: 7"])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_a_response_is_given_with_its_last_piece_and_not_before(body: bytes, size: int) -> None:
    reader = ResponseReader()
    for status in (200, 429):
        sent = response(status, body)
        given = [reader.received(sent[start : start + size]) for start in range(0, len(sent), size)]
        assert given == [None] * (len(given) - 1) + [Response(status, body)]


def test_a_response_without_a_length_is_noticed() -> None:
    with pytest.raises(Garbled, match="without a length"):
        ResponseReader().received(b"HTTP/1.1 200 \r\n\r\n{}")


def test_rows_are_told_of_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Found(dict[str, float]):
        def __missing__(self, _: str) -> float:
            return 2.0

    monkeypatch.setattr(front, "call", lambda *_, **__: Found())
    rows = [row for part in front.parts(FULL) for row in part.measure()]
    assert len({row.key for row in rows}) == len(rows) == 5
    assert {row.ratio for row in rows} == {0.5, 1.0}
