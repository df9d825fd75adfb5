"""Timelines and feeds as server-sent events: what ends them, and what they leave behind."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from api.http.app import Application
from api.http.handling import event_stream
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.http.handling.event_streams import begun, told
from tests.api.wire import Wire, served
from tests.local_runtime.service import LocalService


class Watched(NamedTuple):
    """A stream that somebody can open, and who can do something about it."""

    wire: Wire
    caller: Caller
    detector: str
    path: str
    operation: str


@pytest.fixture(params=["timeline", "firings"])
async def watched(
    request: pytest.FixtureRequest,
    settings: Settings,
    service: LocalService,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Watched]:
    monkeypatch.setattr(event_stream, "LOOK_S", 0.05)
    app = Application(settings, service.backend)
    caller = Caller(app, BOOTSTRAP)
    detector = await caller.detector()
    rule = await caller.rule(detector, "per user once ok == false", notify=True)
    end = f"rules/{rule}/timeline" if request.param == "timeline" else "firings"
    async with served(app, settings) as wire:
        yield Watched(wire, caller, detector, f"/api/detectors/{detector}/{end}", request.param)


@pytest.mark.parametrize(("of", "code"), [("detector", 1200), ("token", 1101), ("service", None)])
async def test_a_stream_ends_with_what_it_is_of(watched: Watched, of: str, code: int | None) -> None:
    token = (await watched.caller("POST", "/api/token")).result
    connection = await begun(watched.wire, watched.path, token=token["token"])
    match of:
        case "detector":
            await watched.caller("DELETE", f"/api/detectors/{watched.detector}")
        case "token":
            await watched.caller("DELETE", f"/api/token/{token['id']}")
        case _:
            watched.wire.stop()
    said = [data for _, data in await told(connection, 3) if "errors" in data]
    assert [[entry["code"] for entry in last["errors"]] for last in said] == ([[code]] if code else [])


async def test_a_stream_whose_caller_has_left_leaves_nothing_behind(watched: Watched) -> None:
    await begun(watched.wire, watched.path)
    await watched.wire.hang_up()
    assert await watched.wire.comes_to_rest()


async def test_streams_are_counted_apart_from_pages(watched: Watched) -> None:
    await watched.caller("GET", watched.path)
    await begun(watched.wire, watched.path)
    watched.wire.stop()
    await watched.wire.comes_to_rest()
    counted = (await watched.caller.plain("GET", "/metrics")).text
    for operation in (watched.operation, f"{watched.operation}_stream"):
        assert f'rule_detector_requests_total{{operation="{operation}",status="200"}} 1.0' in counted
    assert 'operation="evaluate_stream"' not in counted
