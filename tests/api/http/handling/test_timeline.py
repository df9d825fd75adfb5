"""A timeline over HTTP: at once as JSON, and as server-sent events while things happen."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.http.app import Application
from api.http.handling import event_stream
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.http.handling.event_streams import begun, told
from tests.api.wire import Connection, Wire, served
from tests.local_runtime.service import LocalService

UNKNOWN = "0" * 32


class Watched:
    """A detector with one rule, and what somebody does with it."""

    def __init__(self, wire: Wire, caller: Caller, detector: str, rule: str) -> None:
        self.wire, self.caller, self.detector, self.rule = wire, caller, detector, rule

    async def evaluate(self, user: str, ok: bool) -> None:
        event = {"fields": {"user": user, "ok": ok}, "timestamp_ms": 1000}
        await self.caller("POST", f"/api/detectors/{self.detector}/evaluate", {"event": event})

    async def look(self, query: str = "", rule: str | None = None) -> Any:
        path = f"/api/detectors/{self.detector}/rules/{rule or self.rule}/timeline{query}"
        return await self.caller("GET", path)

    async def stream(self) -> Connection:
        return await begun(self.wire, f"/api/detectors/{self.detector}/rules/{self.rule}/timeline")


async def next_of(connection: Connection) -> Any:
    """Return the next event of a stream, or None at its end."""
    for _, data in await told(connection, 1):
        return data
    return None


@pytest.fixture
async def watched(
    settings: Settings, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    monkeypatch.setattr(event_stream, "LOOK_S", 0.05)
    app = Application(settings, service.backend)
    caller = Caller(app, BOOTSTRAP)
    detector = (await caller("POST", "/api/detectors", {"name": "shop"})).result["id"]
    wanted = {"name": "failed", "condition": "per user once ok == false"}
    rule = (await caller("POST", f"/api/detectors/{detector}/rules", wanted)).result["id"]
    async with served(app, settings) as wire:
        yield Watched(wire, caller, detector, rule)


async def test_it_begins_when_somebody_looks(watched: Watched) -> None:
    await watched.evaluate("ada", ok=False)
    first = (await watched.look()).result
    assert first == {
        "ruleId": watched.rule,
        "text": "per user once ok == false",
        "rows": ["per user: once ok == false"],
        "moments": [],
    }
    await watched.evaluate("ada", ok=True)
    await watched.evaluate("bob", ok=True)
    seen = (await watched.look()).result["moments"]
    assert [(one["number"], one["verdict"], one["verdicts"], one["key"]) for one in seen] == [
        (2, True, [True], {"user": "ada"}),
        (3, False, [False], {"user": "bob"}),
    ]
    assert (await watched.look("?after=2")).result["moments"] == seen[1:]


async def test_what_is_wrong_is_told(watched: Watched) -> None:
    assert (await watched.look(rule=UNKNOWN)).codes == [1201]
    assert (await watched.look("?key=[1]")).codes == [1006]
    assert (await watched.look("?after=-1")).codes == [1006]
    assert (await watched.caller("GET", f"/api/detectors/{UNKNOWN}/rules/{watched.rule}/timeline")).codes == [
        1200
    ]


async def test_a_stream_tells_events_as_they_happen(watched: Watched) -> None:
    connection = await watched.stream()
    assert (await next_of(connection))["moments"] == []
    await watched.evaluate("ada", ok=False)
    assert [one["verdict"] for one in (await next_of(connection))["moments"]] == [True]
    await watched.evaluate("bob", ok=True)
    assert [one["number"] for one in (await next_of(connection))["moments"]] == [2]
    late = await watched.stream()
    assert [one["number"] for one in (await next_of(late))["moments"]] == [1, 2]
    await watched.evaluate("bob", ok=False)
    for each in (connection, late):
        assert [one["number"] for one in (await next_of(each))["moments"]] == [3]


async def test_a_stream_goes_on_when_the_condition_changes(watched: Watched) -> None:
    connection = await watched.stream()
    await next_of(connection)
    await watched.evaluate("ada", ok=False)
    await next_of(connection)
    path = f"/api/detectors/{watched.detector}/rules/{watched.rule}"
    await watched.caller("PATCH", path, {"condition": "ok == true"})
    await watched.look()
    await watched.evaluate("ada", ok=True)
    news = await next_of(connection)
    assert (news["text"], [one["number"] for one in news["moments"]]) == ("ok == true", [2])


async def test_a_stream_ends_with_its_rule(watched: Watched) -> None:
    connection = await watched.stream()
    await next_of(connection)
    await watched.caller("DELETE", f"/api/detectors/{watched.detector}/rules/{watched.rule}")
    assert [entry["code"] for entry in (await next_of(connection))["errors"]] == [1201]
    assert await next_of(connection) is None
