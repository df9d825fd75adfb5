"""Tokens that may evaluate some events a second: whatever counts as an event, and what comes past that."""

from typing import Any

import pytest

from api.http.app import Application
from api.settings import Settings
from engine.runtime.contract.tokens import Grant
from engine.runtime.front_end.permits import Rate
from tests.api.caller import Caller
from tests.api.http.scopes.tokens import token, with_token
from tests.api.streaming import line, stream
from tests.api.wire import served
from tests.local_runtime.service import LocalService

EVENT = {"fields": {}, "timestamp_ms": 0}
SLOW = 0.001
"""Events a second: in a test, what is gone does not come back."""


async def spend(caller: Caller, detector: str, kind: str, events: int) -> Any:
    path = f"/api/detectors/{detector}"
    match kind:
        case "evaluate" | "evaluate?dry_run=true" | "evaluate?explain=true":
            return await caller("POST", f"{path}/{kind}", {"event": EVENT})
        case "tick":
            return await caller("POST", f"{path}/tick", {"timestamp_ms": 0})
        case "ingest":
            return await caller("POST", f"{path}/ingest", [{} for _ in range(events)])
        case "ingest with a byte order mark":
            return await caller(
                "POST", f"{path}/ingest", content=b"\xef\xbb\xbf[%b]" % b",".join([b"{}"] * events)
            )
        case "ingest of lines":
            return await caller("POST", f"{path}/ingest", content=b"{}\n\n" * events)
        case _:
            return await caller("POST", f"{path}/{kind}", {"events": [EVENT] * events})


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("evaluate", 1),
        ("evaluate?dry_run=true", 1),
        ("evaluate?explain=true", 1),
        ("tick", 1),
        ("evaluate/batch", 3),
        ("evaluate/batch?dry_run=true", 3),
        ("evaluate/batch?details=true", 3),
        ("ingest", 3),
        ("ingest with a byte order mark", 3),
        ("ingest of lines", 3),
    ],
)
async def test_past_its_rate_a_token_gets_1401(
    caller: Caller, kind: str, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, moments = Rate.take, list[float]()

    def take_at_one_moment(rate: Rate, events: int, now_s: float) -> float:
        # On a busy machine, some of the second would pass.
        moments.append(now_s)
        return take(rate, events, moments[0])

    monkeypatch.setattr(Rate, "take", take_at_one_moment)
    detector = await caller.detector()
    # The clock of a detector begins with an event.
    await caller.evaluate(detector, {})
    bounded = await with_token(caller, events_per_s=7)
    for _ in range(7 // events):
        assert (await spend(bounded, detector, kind, events)).status == 200
    before = (await caller("GET", f"/api/detectors/{detector}/state")).result["events"]
    refused = await spend(bounded, detector, kind, 7)
    assert (refused.status, refused.codes) == (429, [1401])
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.texts == ["the token may send 7 events a second; nothing was evaluated"]
    assert (await caller("GET", f"/api/detectors/{detector}/state")).result["events"] == before
    # Others, and what is no evaluation, are not held back.
    assert (await spend(caller, detector, kind, 7)).status == 200
    assert (await bounded("GET", f"/api/detectors/{detector}/rules")).status == 200


async def test_a_batch_past_the_rate_is_admitted_once_and_paid_for_later(caller: Caller) -> None:
    detector = await caller.detector()
    bounded = await with_token(caller, events_per_s=1)
    assert len((await spend(bounded, detector, "evaluate/batch", 9)).result["results"]) == 9
    refused = await spend(bounded, detector, "evaluate", 1)
    assert refused.codes == [1401]
    assert 8 <= int(refused.headers["retry-after"]) <= 10


async def test_what_is_no_batch_counts_once(caller: Caller) -> None:
    detector = await caller.detector()
    bounded = await with_token(caller, events_per_s=SLOW)
    reply = await bounded("POST", f"/api/detectors/{detector}/evaluate/batch", content=b'{"events": [')
    assert reply.codes == [1000]
    assert (await bounded.evaluate(detector, {})).codes == [1401]


async def test_a_stream_is_slowed_and_not_refused(
    settings: Settings, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, taken = Rate.take, list[tuple[int, bool]]()

    def noted(rate: Rate, events: int, now_s: float) -> float:
        wait_s = take(rate, events, now_s)
        taken.append((events, wait_s > 0))
        return wait_s

    monkeypatch.setattr(Rate, "take", noted)
    app = Application(settings, service.backend)
    async with served(app, settings) as wire:
        caller = Caller(app, settings.bootstrap_token)
        detector = await caller.detector()
        secret = await token(caller, events_per_s=50)
        one = await stream(wire, detector, secret)
        for _ in range(150):
            await one.send(line())
        await one.end()
        await one.begun()
        said = [await one.next() for _ in range(151)]
        assert said[-1] == {"done": 150}
        assert sum(events for events, waits in taken if not waits) == 150
        assert [events for events, waits in taken if waits]
        assert max(events for events, _ in taken) <= 50


async def test_a_stream_that_waits_for_its_turn_ends_with_its_token(
    settings: Settings, service: LocalService
) -> None:
    app = Application(settings, service.backend)
    async with served(app, settings) as wire:
        caller = Caller(app, settings.bootstrap_token)
        detector = await caller.detector()
        minted = await service.backend.mint_token("slow", Grant(events_per_s=SLOW))
        one = await stream(wire, detector, minted.token)
        await one.send(line() * 2)
        await one.begun()
        assert (await one.next())["actions"] == []
        await caller("DELETE", f"/api/token/{minted.id}")
        closing = await one.next()
        assert (closing["done"], [each["code"] for each in closing["errors"]]) == (1, [1101])
