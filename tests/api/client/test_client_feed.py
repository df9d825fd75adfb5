"""Feeds of a real service over a real socket: the client reads them on, and they are delivered."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import pytest

from api.cli.delivering import deliveries
from api.cli.delivering.deliveries import Figures
from api.cli.delivering.places import Places
from api.cli.delivering.targets import Appended
from api.cli.delivering.templates import FORMS
from api.http.app import Application
from api.settings import Settings
from rule_detector_client import AsyncClient, Client, Firing, Gap
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import Wire, served
from tests.local_runtime.service import LocalService


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, max_firings=4)


@pytest.fixture
async def there(settings: Settings, service: LocalService) -> AsyncIterator[Wire]:
    async with served(Application(settings, service.backend), settings) as wire:
        yield wire


def url(wire: Wire) -> str:
    return f"http://127.0.0.1:{wire.port}"


async def detector_of(caller: Caller, name: str = "logins") -> str:
    detector = await caller.detector(name)
    await caller.rule(detector, "per user a == 1", notify=True, labels={"level": 7})
    return detector


async def fire(caller: Caller, detector: str, times: int = 1) -> None:
    for number in range(times):
        said = await caller.evaluate(detector, {"a": 1, "user": f"u{number}"}, 1_709_542_800_000)
        assert len(said.result["actions"]) == 1


async def test_both_clients_read_what_fired_and_what_is_gone(there: Wire, caller: Caller) -> None:
    detector = await detector_of(caller)
    await fire(caller, detector, 6)

    def read() -> list[Firing | Gap]:
        with Client(url(there), BOOTSTRAP) as client:
            assert client.last_firing(detector) == 6
            return list(islice(client.firings(detector, after=0), 5))

    gap, *firings = await asyncio.to_thread(read)
    assert gap == Gap(1, 2)
    assert [(one.seq, one.keys, one.labels) for one in firings] == [
        (seq, {"user": f"u{seq - 1}"}, {"level": 7}) for seq in (3, 4, 5, 6)
    ]
    async with AsyncClient(url(there), BOOTSTRAP) as client:
        feed = client.firings(detector)
        coming = asyncio.ensure_future(anext(feed))
        # It begins with what fires from now on.
        while await client.last_firing(detector) == 6 and not coming.done():
            await asyncio.sleep(0.3)
            await fire(caller, detector)
        assert (await coming).seq >= 7
        await feed.aclose()


async def test_what_fires_is_delivered(
    there: Wire, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LOOK_S", 0.1)
    old = await detector_of(caller, "old")
    await fire(caller, old)
    fired, stop = tmp_path / "fired", asyncio.Event()
    target = Appended(fired)
    places = Places(tmp_path / "state", target.sync, every=True)
    client = AsyncClient(url(there), BOOTSTRAP)
    delivering = deliveries.Deliveries(client, target, FORMS["generic"], places, None, Figures(), pytest.fail)
    task = asyncio.create_task(delivering.run(stop))

    async def until(expected: dict[str, int]) -> None:
        async with asyncio.timeout(30):
            while any(places.of(one) != place for one, place in expected.items()):  # noqa: ASYNC110 -- a file
                await asyncio.sleep(0.05)

    await until({old: 1})
    await fire(caller, old, 2)
    new = await detector_of(caller, "new")
    await fire(caller, new)
    await until({old: 3, new: 1})
    stop.set()
    await task
    await client.close()
    lines = [json.loads(line) for line in fired.read_bytes().splitlines()]
    assert [(line["detectorId"], line["seq"]) for line in lines if line["detector"] == "old"] == [
        (old, 2),
        (old, 3),
    ]
    assert [(line["detectorId"], line["seq"]) for line in lines if line["detector"] == "new"] == [(new, 1)]
    assert all(line["why"] for line in lines)
