"""Streams of the client over a real socket: results come while events are sent, and failures are told."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.http.app import Application
from api.settings import Settings
from rule_detector_client import AsyncClient, Client, Event
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


async def test_a_detector_is_named_by_any_name(there: Wire, caller: Caller) -> None:
    await caller("POST", "/api/detectors", {"name": "my shöp? / 1"})
    async with AsyncClient(url(there), BOOTSTRAP) as client:
        found = [result async for result in client.stream("name:my shöp? / 1", [Event({"a": 1}, 0)])]
    assert [result.errors for result in found] == [[]]
