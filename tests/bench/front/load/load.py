"""Callers of a server: as fast as it answers, or at times that are fixed beforehand. For uvloop.

All of a load is one process, whose own cost for a request is a few µs: requests are made ready by whoever
gives them, and of a response only its status and length are read.
"""

import asyncio
import itertools
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, NamedTuple

from tests.bench.front.load.wire import LinesReader, Response, ResponseReader
from tests.bench.front.load.world import LAST_CHUNK, chunk

NS_A_S = 10**9
DRAIN_WITHIN_S = 20.0
"""What is under way when a load ends has to be answered within that."""


class Unexpected(Exception):
    """A server answered otherwise than it was to, or not at all: what was measured is no figure."""


Judge = Callable[[Response], str]
"""Gives what kind of answer one is; raises Unexpected."""


def succeeded(response: Response) -> str:
    """Take nothing but success."""
    if response.status != 200:
        raise Unexpected(f"status {response.status}: {response.body[:300]!r}")
    return "200"


@dataclass(slots=True)
class Tally:
    """What a load came to: answers by kind, and how long each took."""

    kinds: Counter[str] = field(default_factory=Counter)
    took_ns: "array[int]" = field(default_factory=lambda: array("q"))
    seconds: float = 0.0
    in_time: int = 0
    """How many answers came before the load was over; those under way then came later."""

    @property
    def per_s(self) -> float:
        """The rate of all answers."""
        return self.in_time / self.seconds


def together(tallies: Sequence[Tally]) -> Tally:
    """Give what loads that ran at the same time come to, which is over when the first of them is."""
    whole = Tally(seconds=min(each.seconds for each in tallies))
    for each in tallies:
        whole.kinds += each.kinds
        whole.took_ns += each.took_ns
        whole.in_time += round(each.per_s * whole.seconds)
    return whole


class Caller(asyncio.Protocol):
    """One connection, with one request under way at a time."""

    __slots__ = ("_gone", "_reader", "_transport", "answered", "lost", "sent_ns")

    def __init__(self) -> None:
        self._reader = ResponseReader()
        self._transport: Any = None
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent_ns = 0
        self.answered: Callable[[Caller, Response], None] = _unasked
        self.lost: Callable[[Exception], None] = _ignored

    def ask(self, request: bytes, since_ns: int) -> None:
        """Send a request, which has been due since then."""
        self.sent_ns = since_ns
        self._transport.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            response = self._reader.received(data)
            if response is not None:
                self.answered(self, response)
        except Exception as error:  # noqa: BLE001 -- the loop would only log it
            self.lost(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set_result(None)
        self.lost(Unexpected(f"the server closed a connection: {exc}"))

    async def close(self) -> None:
        """End the connection."""
        self.lost = _ignored
        self._transport.abort()
        await self._gone


def _unasked(_: Caller, response: Response) -> None:
    raise Unexpected(f"an answer to nothing: {response}")


def _ignored(_: Exception) -> None:
    pass


class Place(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> "Place":
        """Give the place that a URL without a path names."""
        host, _, port = url.removeprefix("http://").rpartition(":")
        return cls(host, int(port))


@asynccontextmanager
async def callers(place: Place, count: int) -> Any:
    """Give this many connections; closed at the end."""
    loop = asyncio.get_running_loop()
    made: list[Caller] = []
    try:
        for _ in range(count):
            _, caller = await loop.create_connection(Caller, *place)
            made.append(caller)
        yield made
    finally:
        for caller in made:
            await caller.close()


class ClosedLoop:
    """Callers of which each sends its next request as soon as the last one is answered.

    Where the requests run out, the load is over at that moment.
    """

    def __init__(self, requests: Iterator[bytes], judge: Judge = succeeded) -> None:
        self._requests = requests
        self._judge = judge
        self._tally = Tally()
        self._began_ns = 0
        self._until_ns = 0
        self._under_way = 0
        self._done: asyncio.Future[None]

    async def run(self, made: list[Caller], seconds: float) -> Tally:
        """Ask for this long, and until all is answered. Raises Unexpected and Garbled."""
        self._done = asyncio.get_running_loop().create_future()
        self._tally = tally = Tally(seconds=seconds)
        self._under_way = len(made)
        self._began_ns = perf_counter_ns()
        self._until_ns = self._began_ns + int(seconds * NS_A_S)
        for caller in made:
            caller.answered = self._answered
            caller.lost = self._fail
            caller.ask(next(self._requests), perf_counter_ns())
        async with asyncio.timeout(seconds + DRAIN_WITHIN_S):
            await self._done
        return tally

    def _answered(self, caller: Caller, response: Response) -> None:
        now_ns = perf_counter_ns()
        tally = self._tally
        tally.took_ns.append(now_ns - caller.sent_ns)
        tally.kinds[self._judge(response)] += 1
        if now_ns < self._until_ns:
            tally.in_time += 1
            request = next(self._requests, None)
            if request is not None:
                caller.ask(request, now_ns)
                return
            self._until_ns = 0
            tally.seconds = (now_ns - self._began_ns) / NS_A_S
        self._under_way -= 1
        if not self._under_way and not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)


class Schedule(NamedTuple):
    """When requests are due: evenly, from a start on. Times in ns."""

    start_ns: int
    per_s: float
    count: int

    def due_ns(self, number: int) -> int:
        """Give when a request is due."""
        return self.start_ns + round(number * NS_A_S / self.per_s)

    def due(self, now_ns: int) -> int:
        """Give how many requests have been due by then."""
        if now_ns < self.start_ns:
            return 0
        number = min(int((now_ns - self.start_ns) * self.per_s / NS_A_S), self.count - 1)
        # What rounding has moved by one.
        while number + 1 < self.count and self.due_ns(number + 1) <= now_ns:
            number += 1
        while self.due_ns(number) > now_ns:
            number -= 1
        return number + 1


class OpenLoop:
    """Callers who send at fixed times, whatever becomes of what was sent before.

    Where all connections are taken, what is due waits for one; how long an answer took is counted from when
    its request was due. The loop's clock ticks in ms, so each is up to one ms later than it need be.
    """

    def __init__(self, requests: Iterator[bytes], judge: Judge = succeeded) -> None:
        self._requests = requests
        self._judge = judge
        self._idle: list[Caller] = []
        self._waiting: deque[int] = deque()
        self._sent = 0
        self._answers = 0
        self._tally = Tally()
        self._until_ns = 0
        self._done: asyncio.Future[None]

    async def run(self, made: list[Caller], per_s: float, seconds: float) -> Tally:
        """Ask so often for this long, and until all is answered. Raises Unexpected and Garbled."""
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()
        self._tally = Tally(seconds=seconds)
        self._sent = self._answers = 0
        self._schedule = Schedule(perf_counter_ns(), per_s, round(per_s * seconds))
        self._until_ns = self._schedule.start_ns + int(seconds * NS_A_S)
        self._idle = list(made)
        for caller in made:
            caller.answered = self._answered
            caller.lost = self._fail
        self._tick()
        async with asyncio.timeout(seconds + DRAIN_WITHIN_S):
            await self._done
        return self._tally

    def _tick(self) -> None:
        schedule = self._schedule
        now_ns = perf_counter_ns()
        due = schedule.due(now_ns)
        while self._sent < due:
            self._waiting.append(schedule.due_ns(self._sent))
            self._sent += 1
        while self._waiting and self._idle:
            self._idle.pop().ask(next(self._requests), self._waiting.popleft())
        if due < schedule.count and not self._done.done():
            self._loop.call_later(max(schedule.due_ns(due) - perf_counter_ns(), 0) / NS_A_S, self._tick)

    def _answered(self, caller: Caller, response: Response) -> None:
        now_ns = perf_counter_ns()
        tally = self._tally
        tally.took_ns.append(now_ns - caller.sent_ns)
        tally.kinds[self._judge(response)] += 1
        self._answers += 1
        tally.in_time += now_ns < self._until_ns
        if self._waiting:
            caller.ask(next(self._requests), self._waiting.popleft())
        else:
            self._idle.append(caller)
        if self._answers == self._schedule.count and not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)


class Stream(asyncio.Protocol):
    """One request whose body is lines, sent in pieces of some lines each, of which a few are under way.

    Where the pieces run out, the load is over at that moment.
    """

    def __init__(self, head: bytes, pieces: Iterator[bytes], lines_each: int, under_way: int) -> None:
        self._head = head
        self._pieces = pieces
        self._lines_each = lines_each
        self._under_way_max = under_way
        self._reader = LinesReader()
        self._sent = 0
        self._began_ns = 0
        self._until_ns = 0
        self._ended = False
        self._tally = Tally()
        self._transport: Any = None
        loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()

    async def run(self, place: Place, seconds: float) -> Tally:
        """Send for this long, and until all is answered. Raises Unexpected and Garbled."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, *place)
        self._tally = Tally(seconds=seconds)
        self._began_ns = perf_counter_ns()
        self._until_ns = self._began_ns + int(seconds * NS_A_S)
        self._transport.write(self._head)
        for piece in itertools.islice(self._pieces, self._under_way_max):
            self._send(piece)
        try:
            async with asyncio.timeout(seconds + DRAIN_WITHIN_S):
                await self._done
        finally:
            self._transport.abort()
            await self._gone
        expected = b'{"done":%d}' % (self._sent * self._lines_each)
        if self._reader.status != 200 or self._reader.last != expected:
            raise Unexpected(f"status {self._reader.status}, {self._reader.last!r} and not {expected!r}")
        self._tally.kinds["200"] = self._reader.lines - 1
        return self._tally

    def _send(self, piece: bytes) -> None:
        self._transport.write(chunk(piece))
        self._sent += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._take(data)
        except Exception as error:  # noqa: BLE001 -- the loop would only log it
            self._end(error)

    def _take(self, data: bytes) -> None:
        counted = self._reader.received(data)
        if self._reader.ended:
            self._end(None)
            return
        if self._ended:
            return
        now_ns = perf_counter_ns()
        if now_ns < self._until_ns:
            self._tally.in_time += counted
            missing = self._reader.lines // self._lines_each + self._under_way_max - self._sent
            pieces = list(itertools.islice(self._pieces, missing))
            for piece in pieces:
                self._send(piece)
            if len(pieces) == missing:
                return
            self._tally.seconds = (now_ns - self._began_ns) / NS_A_S
        self._ended = True
        self._transport.write(LAST_CHUNK)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set_result(None)
        self._end(Unexpected(f"the server closed the stream: {exc}"))

    def _end(self, error: Exception | None) -> None:
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)
