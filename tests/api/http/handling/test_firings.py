"""A feed over HTTP: as pages, and as server-sent events while rules fire (ends: test_event_streams.py)."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.http.app import Application
from api.http.handling import event_stream
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.http.handling.event_streams import Event, asked, begun, told
from tests.api.wire import Connection, Wire, served
from tests.local_runtime.service import LocalService, until

UNKNOWN = "0" * 32


class Fed:
    """A detector with a rule that notifies, and what somebody does with it."""

    def __init__(self, wire: Wire, caller: Caller, service: LocalService, detector: str) -> None:
        self.wire, self.caller, self.service, self.detector = wire, caller, service, detector

    async def fire(self, *users: str) -> None:
        for user in users:
            event = {"fields": {"user": user}, "timestamp_ms": 1000}
            await self.caller("POST", f"/api/detectors/{self.detector}/evaluate", {"event": event})

    async def page(self, query: str = "", detector: str | None = None) -> Any:
        return await self.caller("GET", f"/api/detectors/{detector or self.detector}/firings{query}")

    async def begun(self, query: str = "", headers: str = "") -> Connection:
        return await begun(self.wire, f"/api/detectors/{self.detector}/firings{query}", headers)


def users(events: list[Event]) -> list[tuple[int | None, str]]:
    return [(number, event["keys"]["user"]) for number, event in events]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, max_firings=5)


@pytest.fixture
async def fed(
    settings: Settings, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Fed]:
    monkeypatch.setattr(event_stream, "LOOK_S", 0.05)
    app = Application(settings, service.backend)
    caller = Caller(app, BOOTSTRAP)
    detector = (await caller("POST", "/api/detectors", {"name": "shop"})).result["id"]
    wanted = {"name": "seen", "condition": "per user exists user", "notify": True, "labels": {"level": 3}}
    await caller("POST", f"/api/detectors/{detector}/rules", wanted)
    async with served(app, settings) as wire:
        yield Fed(wire, caller, service, detector)


async def test_pages_go_on_where_the_last_one_ended(fed: Fed) -> None:
    assert (await fed.page()).result == {"firings": [], "next": 0}
    await fed.fire("ann", "bob", "cid")
    first = (await fed.page("?limit=2")).result
    assert [one["keys"] for one in first["firings"]] == [{"user": "ann"}, {"user": "bob"}]
    assert first["firings"][0]["labels"] == {"level": 3}
    assert first["next"] == 2
    rest = (await fed.page(f"?after={first['next']}")).result
    assert ([one["seq"] for one in rest["firings"]], rest["next"]) == ([3], 3)
    assert (await fed.page("?after=3")).result == {"firings": [], "next": 3}


async def test_what_is_wrong_is_told(fed: Fed) -> None:
    assert (await fed.page(detector=UNKNOWN)).codes == [1200]
    for query in ("?after=-1", "?after=x", "?limit=0", "?limit=1001", "?after=1"):
        assert (await fed.page(query)).codes == [1006], query
    for query, headers in (("?after=1", ""), ("", "last-event-id: 1\r\n"), ("", "last-event-id: x\r\n")):
        connection = await asked(fed.wire, f"/api/detectors/{fed.detector}/firings{query}", headers)
        assert (await connection.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400"), (query, headers)


async def test_a_stream_begins_with_the_next_firing_and_says_where(fed: Fed) -> None:
    await fed.fire("ann")
    connection = await fed.begun()
    await connection.reader.readuntil(b"\r\nid: 1\n\n\r\n")
    await fed.fire("bob")
    assert users(await told(connection, 1)) == [(2, "bob")]
    await fed.fire("cid", "dan")
    assert users(await told(connection, 2)) == [(3, "cid"), (4, "dan")]


@pytest.mark.parametrize(("query", "headers"), [("?after=1", ""), ("?after=9", "last-event-id: 1\r\n")])
async def test_a_stream_goes_on_after_a_number(fed: Fed, query: str, headers: str) -> None:
    await fed.fire("ann", "bob", "cid")
    assert users(await told(await fed.begun(query, headers), 2)) == [(2, "bob"), (3, "cid")]


async def test_what_is_gone_is_a_gap(fed: Fed) -> None:
    await fed.fire(*"abcdefg")
    gap, *rest = (await fed.page("?after=0")).result["firings"]
    assert gap == {"gap": {"from": 1, "to": 2}}
    assert [one["seq"] for one in rest] == [3, 4, 5, 6, 7]
    (number, first), *others = await told(await fed.begun("?after=0"), 6)
    assert (number, first) == (2, gap)
    assert [number for number, _ in others] == [3, 4, 5, 6, 7]


async def test_a_stream_is_read_in_pages(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "PAGE", 2)
    await fed.fire(*"abcde")
    connection = await fed.begun("?after=0")
    parts = [[number for number, _ in await told(connection, 1)] for _ in range(3)]
    assert parts == [[1, 2], [3, 4], [5]]


async def test_an_idle_stream_says_that_it_is_alive(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "ALIVE_S", 0.05)
    connection = await fed.begun()
    async with asyncio.timeout(10):
        for _ in range(3):
            await connection.reader.readuntil(b":\n\n")


async def test_a_stream_neither_activates_its_detector_nor_keeps_it_active(fed: Fed) -> None:
    connection = await fed.begun()
    placed = fed.service.scheduler._placed[fed.detector]
    placed.make_room()
    await until(lambda: placed.worker_name is None)
    epoch = placed.epoch
    await asyncio.sleep(10 * event_stream.LOOK_S)
    assert (placed.worker_name, placed.epoch) == (None, epoch)
    await fed.fire("ann")
    assert users(await told(connection, 1)) == [(1, "ann")]


async def test_what_fires_just_before_a_detector_rests_is_told(fed: Fed) -> None:
    connection = await fed.begun()
    placed = fed.service.scheduler._placed[fed.detector]
    await fed.fire("ann")
    placed.make_room()
    await until(lambda: placed.worker_name is None)
    assert users(await told(connection, 1)) == [(1, "ann")]
