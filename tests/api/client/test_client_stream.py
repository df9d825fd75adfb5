"""Streams of the client over a real socket: results come while events are sent, and failures are told."""

import asyncio
import dataclasses
import queue
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from api.http.app import Application
from api.settings import Settings
from rule_detector_client import AsyncClient, Client, Event, ServiceError, calls
from rule_detector_client import stream as streaming
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import Wire, served
from tests.local_runtime.service import LocalService


@pytest.fixture
async def there(settings: Settings, service: LocalService) -> AsyncIterator[Wire]:
    async with served(Application(settings, service.backend), settings) as wire:
        yield wire


def url(wire: Wire) -> str:
    return f"http://127.0.0.1:{wire.port}"


async def detector_of(caller: Caller) -> str:
    detector = await caller.detector()
    await caller.rule(detector, "a == 1")
    return detector


async def test_a_result_comes_before_the_next_event_is_sent(there: Wire, caller: Caller) -> None:
    detector = await detector_of(caller)
    given: asyncio.Queue[Event | None] = asyncio.Queue()

    async def source() -> AsyncIterator[Event]:
        while (event := await given.get()) is not None:
            yield event

    fired = []
    async with asyncio.timeout(20), AsyncClient(url(there), BOOTSTRAP) as client:
        await given.put(Event({"a": 1}, 1))
        async for result in client.stream(detector, source()):
            fired.append(len(result.actions))
            await given.put(Event({"a": 0}, len(fired)) if len(fired) < 5 else None)
    assert fired == [1, 0, 0, 0, 0]


async def test_a_thread_sends_while_results_are_read(there: Wire, caller: Caller) -> None:
    detector = await detector_of(caller)

    def run() -> list[int]:
        given: queue.Queue[Event | None] = queue.Queue()
        given.put(Event({"a": 1}, 1))
        fired = []
        with Client(url(there), BOOTSTRAP) as client:
            for result in client.stream(detector, iter(given.get, None)):
                fired.append(len(result.actions))
                given.put(Event({"a": 0}, len(fired)) if len(fired) < 5 else None)
        return fired

    assert await asyncio.to_thread(run) == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("service", ["apart"], indirect=True)
async def test_more_than_any_buffer_holds_is_sent_and_read_at_once(there: Wire, caller: Caller) -> None:
    detector = await detector_of(caller)
    count = 3_000
    events = [Event({"a": n % 2, "text": "x" * 5_000}, n) for n in range(count)]

    def run() -> list[int]:
        with Client(url(there), BOOTSTRAP) as client:
            return [len(result.actions) for result in client.stream(detector, events)]

    assert await asyncio.to_thread(run) == [n % 2 for n in range(count)]


async def test_a_refused_event_has_its_errors_in_its_place(there: Wire, caller: Caller) -> None:
    detector = await detector_of(caller)
    events = [Event({"a": 1}, 0), Event({"a": 1}, 1e300), Event({"a": 1}, 1)]
    async with AsyncClient(url(there), BOOTSTRAP) as client:
        found = [result async for result in client.stream(detector, events)]
    assert [[entry.code for entry in result.errors] for result in found] == [[], [1001], []]


async def test_a_stream_that_is_refused_says_why(there: Wire, caller: Caller) -> None:
    def run(token: str, detector: str) -> ServiceError:
        with Client(url(there), token) as client, pytest.raises(ServiceError) as error:
            list(client.stream(detector, [Event({}, 0)]))
        return error.value

    unknown = await asyncio.to_thread(run, "wrong", "0" * 32)
    assert (unknown.code, unknown.status, unknown.in_doubt) == (1101, 401, False)
    missing = await asyncio.to_thread(run, BOOTSTRAP, "0" * 32)
    assert (missing.code, missing.status) == (1200, 404)


async def test_a_stream_to_nobody_is_told(there: Wire) -> None:
    with pytest.raises(ServiceError, match="no service answers") as error:
        list(Client("http://127.0.0.1:1", "t").stream("d", []))
    assert not error.value.sent
    with pytest.raises(ServiceError, match="no service answers"):
        [result async for result in AsyncClient("http://127.0.0.1:1", "t").stream("d", [])]


async def test_what_the_source_raises_ends_the_stream_and_is_raised(there: Wire, caller: Caller) -> None:
    detector = await detector_of(caller)

    def broken() -> Iterator[Event]:
        yield Event({"a": 1}, 0)
        raise LookupError("the source broke")

    def run() -> None:
        with Client(url(there), BOOTSTRAP) as client, pytest.raises(LookupError, match="the source broke"):
            list(client.stream(detector, broken()))

    await asyncio.to_thread(run)
    async with AsyncClient(url(there), BOOTSTRAP) as client:
        with pytest.raises(LookupError, match="the source broke"):
            [result async for result in client.stream(detector, broken())]


@pytest.mark.parametrize("service", ["apart"], indirect=True)
async def test_a_stream_can_be_left_at_any_result(there: Wire, caller: Caller) -> None:
    detector = await detector_of(caller)

    def endless() -> Iterator[Event]:
        number = 0
        while True:
            number += 1
            yield Event({"a": 1}, number)

    def run() -> None:
        with Client(url(there), BOOTSTRAP) as client:
            results = client.stream(detector, endless())
            assert len(next(results).actions) == 1
            results.close()  # type: ignore[attr-defined]
            assert client.send(calls.list_rules(detector))

    await asyncio.to_thread(run)
    async with AsyncClient(url(there), BOOTSTRAP) as client:
        slow = (Event({"a": 1}, n) for n in range(10**9))
        async for result in client.stream(detector, slow):
            assert len(result.actions) == 1
            break


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(("idle_s", "lives"), [(0.1, True), (60.0, False)])
async def test_blank_lines_keep_a_silent_stream_alive(
    service: LocalService,
    settings: Settings,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    idle_s: float,
    *,
    lives: bool,
) -> None:
    monkeypatch.setattr(streaming, "_IDLE_S", idle_s)
    detector = await detector_of(caller)
    hasty = dataclasses.replace(settings, deadline_s=0.5)
    loop, silent = asyncio.get_running_loop(), threading.Event()

    def slow() -> Iterator[Event]:
        yield Event({"a": 1}, 0)
        # By the service's clock, which this thread does not have.
        loop.call_soon_threadsafe(loop.call_later, 0.9, silent.set)
        silent.wait()
        yield Event({"a": 1}, 1)

    async def slow_async() -> AsyncIterator[Event]:
        yield Event({"a": 1}, 0)
        await asyncio.sleep(0.9)
        yield Event({"a": 1}, 1)

    def run(url: str) -> list[int]:
        with Client(url, BOOTSTRAP) as client:
            return [len(result.actions) for result in client.stream(detector, slow())]

    async def run_async(url: str) -> list[int]:
        async with AsyncClient(url, BOOTSTRAP) as client:
            return [len(result.actions) async for result in client.stream(detector, slow_async())]

    async with served(Application(hasty, service.backend), hasty) as wire:
        found = await asyncio.gather(
            asyncio.to_thread(run, url(wire)), run_async(url(wire)), return_exceptions=True
        )
    if lives:
        assert found == [[1, 1], [1, 1]]
    else:
        assert [getattr(error, "code", None) for error in found] == [1502, 1502]
