"""Callers of a server, which send as fast as it answers. For uvloop.

All of a load is one process, whose own cost for a request is a few µs: requests are made ready by whoever
gives them, and of a response only its status and length are read.
"""

import asyncio
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, NamedTuple

from tests.bench.front.load.wire import Response, ResponseReader

NS_A_S = 10**9
DRAIN_WITHIN_S = 20.0
"""Requests under way when a load ends must be answered within this time."""


class Unexpected(Exception):
    """A server answered wrongly or not at all, so the measurement is void."""


Judge = Callable[[Response], str]
"""Returns the kind of an answer; raises Unexpected."""


def succeeded(response: Response) -> str:
    """Accept only success."""
    if response.status != 200:
        raise Unexpected(f"status {response.status}: {response.body[:300]!r}")
    return "200"


@dataclass(slots=True)
class Tally:
    """The results of a load: answers by kind, and how long each took."""

    kinds: Counter[str] = field(default_factory=Counter)
    took_ns: "array[int]" = field(default_factory=lambda: array("q"))
    seconds: float = 0.0
    in_time: int = 0
    """How many answers came before the load was over; those under way at that time came later."""

    @property
    def per_s(self) -> float:
        """The rate of all answers."""
        return self.in_time / self.seconds


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
        """Send a request, which has been due since the given time."""
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
        """Return the place that a URL without a path names."""
        host, _, port = url.removeprefix("http://").rpartition(":")
        return cls(host, int(port))


@asynccontextmanager
async def callers(place: Place, count: int) -> Any:
    """Yield this many connections; closed at the end."""
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
    """Callers, each of which sends its next request as soon as the last one is answered.

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
