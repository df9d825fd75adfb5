"""Why callers are refused: by code and by cause in the metrics, and one line in ten seconds in the log."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from api.http.app import Application
from api.observability.logs import INTERVAL_S, ThrottleLog
from api.observability.request_metrics import EXPIRED_CAUSES, THROTTLED_CAUSES
from api.settings import Settings
from engine.runtime.front_end.memory_budget import (
    ANSWERS,
    BUSY,
    BYTES,
    EXPIRED,
    MEMORY,
    QUEUE,
    READING,
    SLOTS,
    THROTTLED,
)
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.observability.test_metrics import families
from tests.local_runtime.service import local_service

T = TypeVar("T")

Counted = dict[tuple[str, ...], float]


async def counted(caller: Caller, name: str, *labels: str) -> Counted:
    samples = (await families(caller))[f"rule_detector_{name}"]
    return {tuple(one.labels[label] for label in labels): one.value for one in samples if one.value}


def caller_of(tmp_path: Path, service: Any) -> Caller:
    return Caller(Application(Settings(data=tmp_path, bootstrap_token=BOOTSTRAP), service.backend), BOOTSTRAP)


def in_loop(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    del name
    done = asyncio.get_running_loop().create_future()
    done.set_result(call())
    return done


async def test_events_actions_and_refusals_by_code_are_counted_wherever_they_arise(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service)
        detector = await caller.detector()
        await caller.rule(detector, "a == 1")
        await caller.rule(detector, "a >= 1")
        await caller.rule(detector, "a == 1", shadow=True)
        path = f"/api/detectors/{detector}/evaluate"
        day = 24 * 3600 * 1000

        def event(a: int, timestamp_ms: int = 2 * day) -> dict[str, Any]:
            return {"fields": {"a": a}, "timestamp_ms": timestamp_ms}

        assert len((await caller.evaluate(detector, {"a": 1}, 2 * day)).result["actions"]) == 2
        assert (await caller.evaluate(detector, {"a": 1}, 0)).codes == [1402]
        batch = {"events": [event(1), event(2), event(1, 0), event(0)]}
        assert (await caller("POST", f"{path}/batch", batch)).status == 200
        lines = "\n".join([json.dumps({"event": event(2)}), "no JSON", json.dumps({"event": event(1, 0)})])
        sent = {"Authorization": f"Bearer {BOOTSTRAP}", "Content-Type": "application/x-ndjson"}
        answered = await caller.plain("POST", f"{path}/batch", content=lines.encode(), headers=sent)
        assert len(answered.text.splitlines()) == 4
        # Nothing of it is evaluated or kept, so nothing is counted.
        assert (await caller("POST", f"{path}?dry_run=true", {"event": event(1)})).status == 200
        assert (await caller("POST", path, {"event": {}})).codes[:1] == [1001]
        assert (await caller("POST", "/api/detectors/0/evaluate", {"event": event(1)})).codes == [1200]
        assert await counted(caller, "events") == {(): 5}
        assert await counted(caller, "actions") == {(): 6}
        assert await counted(caller, "events_refused", "code") == {
            ("1402",): 3,
            ("1000",): 1,
            ("1001",): 1,
        }
        assert await counted(caller, "refusals", "operation", "code") == {
            ("evaluate", "1402"): 1,
            ("evaluate", "1001"): 1,
            ("evaluate", "1200"): 1,
        }


async def test_a_1401_for_answers_that_are_kept_has_its_cause(tmp_path: Path) -> None:
    async with local_service(tmp_path, answers_kept_bytes_max=1) as service:
        caller = caller_of(tmp_path, service)
        detector = await caller.detector()
        path = f"/api/detectors/{detector}/evaluate"
        body = {"event": {"fields": {}, "timestamp_ms": 0}}
        assert (await caller("POST", path, body, headers={"Idempotency-Key": "1"})).status == 200
        assert (await caller("POST", path, body, headers={"Idempotency-Key": "2"})).codes == [1401]
        assert await counted(caller, "throttled", "cause") == {(ANSWERS,): 1}
        assert await counted(caller, "refusals", "operation", "code") == {("evaluate", "1401"): 1}


async def test_a_stream_that_an_error_ends_counts_as_refused(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service)
        detector = await caller.detector()
        service.backend.channels.refuse_all()
        service.backend._closing = True
        sent = {"Authorization": f"Bearer {BOOTSTRAP}", "Content-Type": "application/x-ndjson"}
        line = b'{"event": {"fields": {}, "timestamp_ms": 0}}\n'
        answered = await caller.plain(
            "POST", f"/api/detectors/{detector}/evaluate/batch", content=line, headers=sent
        )
        assert (answered.status_code, answered.json()["errors"][0]["code"]) == (200, 1503)
        service.backend._closing = False
        assert await counted(caller, "refusals", "operation", "code") == {("evaluate_stream", "1503"): 1}


@pytest.mark.skipping_clock
async def test_who_waits_for_a_slot_until_the_deadline_is_told_so_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no 1401: it may be the only request for its detector, and waits until its deadline."""
    # The clock would pass the deadline while the metrics are made in another thread.
    for module in ("api.observability.metrics_page", "engine.runtime.scheduler.census"):
        monkeypatch.setattr(f"{module}.off_loop", in_loop)
    async with local_service(tmp_path, max_resident=1) as service:
        caller = caller_of(tmp_path, service)
        busy, *others = [await caller.detector() for _ in range(3)]
        await caller.rule(busy, "a == 1")
        actor = service.actors.with_detector(busy)
        assert actor is not None
        held = asyncio.Event()

        async def hold(call: str) -> None:
            if call == "handle":
                held.set()
                await asyncio.sleep(100)

        actor.before = hold
        holding = asyncio.create_task(caller.evaluate(busy, {"a": 1}, 0))
        await held.wait()
        # It waits behind the one that is under way.
        behind = asyncio.create_task(caller.evaluate(busy, {"a": 1}, 0))
        with caplog.at_level(logging.WARNING):
            waiting = [asyncio.create_task(caller.evaluate(other, {"a": 1}, 0)) for other in others]
            await asyncio.sleep(5)
            assert await counted(caller, "detectors_waiting_for_slots") == {(): 2}
            said = [await one for one in waiting]
            assert [one.codes for one in [*said, await holding, await behind]] == [
                [1501],
                [1501],
                [1502],
                [1501],
            ]
            assert "all slots for active detectors are taken, and 2 wait for one" in said[0].texts[0]
            assert "was busy with earlier requests" in (await behind).texts[0]
            assert await counted(caller, "expired", "cause") == {(SLOTS,): 2, (BUSY,): 1}
            assert await counted(caller, "throttled", "cause") == {}
        (record,) = [one for one in caplog.records if "1501 at their deadline" in one.getMessage()]
        assert record.fields == {"count": 3, SLOTS: 2, BUSY: 1}  # type: ignore[attr-defined]


def test_each_cause_has_its_meaning() -> None:
    assert tuple(THROTTLED_CAUSES) == THROTTLED
    assert tuple(EXPIRED_CAUSES) == EXPIRED


def test_refusals_are_logged_at_once_and_then_in_one_line_each_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 50.0
    log = ThrottleLog("requests were refused with 1401", THROTTLED, lambda: now_s)
    with caplog.at_level(logging.WARNING):
        log.note(Counter())
        assert caplog.records == []
        log.note(Counter({QUEUE: 2}))
        for _ in range(100):
            log.note(Counter({QUEUE: 1000, READING: 5}))
        assert len(caplog.records) == 1
        now_s += INTERVAL_S
        log.note(Counter({MEMORY: 1, BYTES: 1}))
        now_s += INTERVAL_S
        log.note(Counter())
    first, second = caplog.records
    assert first.getMessage() == second.getMessage() == "requests were refused with 1401"
    assert first.fields == {"count": 2, QUEUE: 2}  # type: ignore[attr-defined]
    assert second.fields == {  # type: ignore[attr-defined]
        "count": 100_502,
        QUEUE: 100_000,
        BYTES: 1,
        MEMORY: 1,
        READING: 500,
    }


async def test_the_service_logs_what_it_has_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with local_service(tmp_path) as service:
        app = Application(Settings(data=tmp_path, bootstrap_token=BOOTSTRAP), service.backend)
        service.backend.memory.throttled[QUEUE] += 7
        with caplog.at_level(logging.WARNING, "rule_detector.requests"):
            await app.report()
            await app.report()
    (record,) = caplog.records
    assert record.fields == {"count": 7, QUEUE: 7}  # type: ignore[attr-defined]
