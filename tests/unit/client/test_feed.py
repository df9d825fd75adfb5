"""The feed of a detector: it is read on whatever breaks, and nothing of it is lost, doubled or swallowed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from rule_detector_client import AsyncClient, Client, Firing, Gap, ServiceError
from rule_detector_client.feed import OPENED_AT_ONCE, Events

Answer = Callable[[httpx.Request], httpx.Response]


def firing(seq: int, **members: Any) -> dict[str, Any]:
    return {"seq": seq, "time_ms": 1.5, "ruleId": "r", "name": "n", "priority": 1, "keys": {}, **members}


def event(entry: Any) -> bytes:
    number = entry.get("seq") or entry.get("gap", {}).get("to", 0)
    return b"id: %d\ndata: %b\n\n" % (number, json.dumps(entry, ensure_ascii=False).encode())


def begins_after(seq: int) -> bytes:
    return b"id: %d\n\n" % seq


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a feed, piece by piece; an exception among the pieces breaks the connection."""

    def __init__(self, pieces: Iterable[bytes | Exception]) -> None:
        self.pieces = pieces
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def feed(*pieces: bytes | Exception) -> httpx.Response:
    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Pieces(pieces))


def refused(status: int, code: int, **headers: str) -> httpx.Response:
    errors = [{"code": code, "message": "the reason"}]
    body = {"success": False, "errors": errors, "messages": [], "result": {}}
    return httpx.Response(status, json=body, headers=headers)


class Read:
    """What a client of one kind reads of a feed, whose connections are answered one after another."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []
        self.breaks: list[str] = []

    def __call__(self, *answers: Any, count: int, after: int | None = 0) -> list[Firing | Gap]:
        left = iter(answers)

        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            given = next(left)
            if isinstance(given, Exception):
                raise given
            return given

        def on_break(error: ServiceError, _wait_s: float) -> None:
            self.breaks.append(str(error))

        transport = httpx.MockTransport(answer)
        if self.kind == "sync":
            with Client("http://s/base", "t", transport=transport, sleep=self.slept.append) as client:
                return list(islice(client.firings("d", after, on_break), count))

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        async def read() -> list[Firing | Gap]:
            found: list[Firing | Gap] = []
            async with AsyncClient("http://s/base", "t", transport=transport, sleep=sleep) as client:
                async for entry in client.firings("d", after, on_break):
                    found.append(entry)
                    if len(found) == count:
                        break
            return found

        return asyncio.run(read())

    @property
    def places(self) -> list[str | None]:
        """Where each connection began."""
        return [request.headers.get("Last-Event-ID") for request in self.requests]


@pytest.fixture(params=["sync", "async"])
def read(request: pytest.FixtureRequest) -> Read:
    return Read(request.param)


def seqs(entries: list[Firing | Gap]) -> list[Any]:
    return [entry.seq if isinstance(entry, Firing) else (entry.first, entry.last) for entry in entries]


def test_a_firing_has_what_the_service_tells_of_it(read: Read) -> None:
    told = firing(
        7, found={"count(a)": 3}, labels={"a": 1}, suppressed=2, timed=True, keys={"ip": "é\u2028\x85"}
    )
    [found] = read(feed(event({**told, "newer": 1})), count=1)
    expected = Firing(7, 1.5, "r", "n", 1, {"ip": "é\u2028\x85"}, {"count(a)": 3}, {"a": 1}, 2, timed=True)
    assert found == expected
    [request] = read.requests
    assert (request.url.path, request.headers["Accept"]) == (
        "/base/api/detectors/d/firings",
        "text/event-stream",
    )


def test_events_are_found_however_their_bytes_are_cut() -> None:
    lines = b": alive\r\n\r\nid: 4\r\nevent: x\ndata: {\ndata:1}\n\n\n: 5\n\ndata: 2\n\nid:6\n\ndata: left\n"
    for size in range(1, len(lines)):
        events = Events()
        pieces = [lines[start : start + size] for start in range(0, len(lines), size)]
        assert [found for piece in pieces for found in events.take(piece)] == [
            (4, b"{\n1}"),
            (4, b"2"),
            (6, b""),
        ]


def test_after_each_kind_of_break_it_goes_on_after_the_last_entry(read: Read) -> None:
    found = read(
        feed(event(firing(4)), event(firing(5))[:9]),
        feed(event(firing(5)), httpx.ReadError("reset")),
        httpx.ConnectError("gone"),
        refused(503, 1501),
        refused(429, 1401),
        httpx.Response(502, text="a proxy's page"),
        feed(b'data: {"errors": [{"code": 1503, "message": "it ends"}]}\n\n'),
        feed(b":\n\n", httpx.ReadTimeout("silent")),
        feed(event(firing(6)), event(firing(7))),
        after=3,
        count=4,
    )
    assert seqs(found) == [4, 5, 6, 7]
    assert read.places == ["3", "4", *["5"] * 7]
    assert len(read.slept) == 8
    assert read.breaks[0] == "http://s/base ended the feed"
    assert "1503 it ends" in read.breaks


def test_kinds_of_entries_that_a_newer_service_has_are_passed_over(read: Read) -> None:
    newer = b'id: 4\nevent: newer\ndata: {"newer": 1}\n\nid: x\n\n'
    found = read(feed(newer), feed(event(firing(5))), after=3, count=1)
    assert seqs(found) == [5]
    assert read.places == ["3", "4"]


def test_an_entry_that_cannot_be_read_is_a_break(read: Read) -> None:
    found = read(feed(b'id: 1\ndata: {"seq": 1}\n\n'), feed(event(firing(1))), count=1)
    assert seqs(found) == [1]
    assert "something else" in read.breaks[0]


def test_waits_grow_and_differ(read: Read) -> None:
    read(feed(event(firing(1))), *[httpx.ReadError("")] * 12, feed(event(firing(2))), count=2)
    first, *others = read.slept
    assert 0.25 <= first <= 0.5
    assert max(others) <= 30
    assert min(others[-4:]) >= 15
    assert len(set(others)) > 5, "waits are drawn, so that not all clients return at once"


def test_a_wait_is_as_long_as_the_service_asks(read: Read) -> None:
    read(feed(event(firing(1))), refused(503, 1503, **{"Retry-After": "9"}), feed(event(firing(2))), count=2)
    assert read.slept[-1] == 9


def test_a_connection_that_lived_begins_the_waits_anew(read: Read) -> None:
    read(feed(event(firing(1))), *[httpx.ReadError("")] * 8, feed(b":\n\n"), feed(event(firing(2))), count=2)
    assert read.slept[-1] <= 0.5 < read.slept[-2]


def test_a_gap_is_given_and_passed_over(read: Read) -> None:
    found = read(feed(event({"gap": {"from": 3, "to": 40}})), feed(event(firing(41))), after=2, count=2)
    assert found[0] == Gap(3, 40)
    assert seqs(found) == [(3, 40), 41]
    assert read.places == ["2", "40"]


def test_without_a_place_it_begins_at_the_newest_and_keeps_that_place_over_a_break(read: Read) -> None:
    found = read(
        httpx.ReadError(""),
        feed(begins_after(8), httpx.ReadError("")),
        feed(event(firing(9))),
        after=None,
        count=1,
    )
    assert seqs(found) == [9]
    assert read.places == [None, None, "8"]


def test_the_newest_firing_is_told() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert "Last-Event-ID" not in request.headers
        return feed(b":\n\n", begins_after(8))

    with Client("http://s", "t", transport=httpx.MockTransport(answer)) as client:
        assert client.last_firing("d") == 8


@pytest.mark.parametrize(("status", "code"), [(401, 1101), (403, 1102), (404, 1200), (400, 1006)])
def test_a_refusal_ends_it(read: Read, status: int, code: int) -> None:
    with pytest.raises(ServiceError) as raised:
        read(feed(event(firing(1))), refused(status, code), count=2)
    assert (raised.value.status, raised.value.code) == (status, code)


def test_a_page_of_something_else_ends_it(read: Read) -> None:
    with pytest.raises(ServiceError, match="no feed"):
        read(httpx.Response(200, json={}), count=1)


def test_feeds_are_opened_a_few_at_a_time() -> None:
    opening, most = 0, 0

    async def answer(_request: httpx.Request) -> httpx.Response:
        nonlocal opening, most
        opening += 1
        most = max(most, opening)
        await asyncio.sleep(0)
        opening -= 1
        return feed(begins_after(1))

    async def read_all() -> list[int]:
        async with AsyncClient("http://s", "t", transport=httpx.MockTransport(answer)) as client:
            return await asyncio.gather(*[client.last_firing("d") for _ in range(50)])

    assert asyncio.run(read_all()) == [1] * 50
    assert most == OPENED_AT_ONCE


def test_an_address_where_nothing_ever_answered_ends_it(read: Read) -> None:
    with pytest.raises(ServiceError, match="no service answers"):
        read(httpx.ConnectError("refused"), count=1)
    assert read.slept == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_whoever_leaves_it_closes_the_connection(kind: str) -> None:
    pieces = Pieces([event(firing(1)), event(firing(2))])
    Read(kind)(httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=pieces), count=1)
    assert pieces.closed
