"""Where the time of a request went: its log record says how long it queued, was evaluated and synced."""

import asyncio
import itertools
import logging
from pathlib import Path
from typing import Any

import pytest

from api.http.app import Application
from api.settings import Settings
from engine.runtime.detector import executor
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.local_runtime.service import local_service

pytestmark = pytest.mark.skipping_clock

TIMES = ("queued_ms", "evaluated_ms", "synced_ms")
SLEPT_S = 12.0


def caller_of(folder: Path, service: Any) -> Caller:
    settings = Settings(data=folder, bootstrap_token=BOOTSTRAP, access_log=True)
    return Caller(Application(settings, service.backend), BOOTSTRAP)


def times(caplog: pytest.LogCaptureFixture, operation: str) -> dict[str, float]:
    """The times in the last record about an operation, without those that it does not have."""
    found = [record.fields for record in caplog.records if record.name == "rule_detector.requests"]  # type: ignore[attr-defined]
    last = [fields for fields in found if fields["operation"] == operation][-1]
    return {name: last[name] for name in TIMES if last[name] is not None}


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the workers' measurements ticks once a second whenever it is read."""
    monkeypatch.setattr(executor.time, "perf_counter", map(float, itertools.count(1)).__next__)


@pytest.mark.usefixtures("ticking")
async def test_the_times_add_up_to_what_the_caller_waited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service)
        detector = await caller.detector()
        await caller.rule(detector, "a == 1")
        actor = service.actors.with_detector(detector)
        assert actor is not None

        async def busy(call: str) -> None:
            if call == "handle":
                await asyncio.sleep(SLEPT_S)

        actor.before = busy
        with caplog.at_level(logging.INFO):
            began_s = asyncio.get_running_loop().time()
            await caller.evaluate(detector, {"a": 1}, 0)
            waited_s = asyncio.get_running_loop().time() - began_s
            evaluated = times(caplog, "evaluate")
            # Nothing of a read is written.
            await caller("GET", f"/api/detectors/{detector}/state")
            read = times(caplog, "state")
    # The clock is read at the begin and the end of the batch, of the journal's record, and of the sync.
    assert (evaluated["evaluated_ms"], evaluated["synced_ms"]) == (2000, 3000)
    assert waited_s >= SLEPT_S
    assert evaluated["queued_ms"] == pytest.approx(1000 * (waited_s - 5), abs=1000)
    # The check of the owner is all that a read has of the journal.
    assert (read["evaluated_ms"], read["synced_ms"]) == (2000, 1000)


async def test_a_request_that_was_never_sent_has_only_queued(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with local_service(tmp_path, spares=0) as service:
        service.actors.room.clear()
        caller = caller_of(tmp_path, service)
        detector = await caller.detector()
        with caplog.at_level(logging.INFO):
            assert (await caller.evaluate(detector, {"a": 1}, 0)).codes == [1501]
            assert list(times(caplog, "evaluate")) == ["queued_ms"]
            assert times(caplog, "evaluate")["queued_ms"] == pytest.approx(30_000, abs=500)
            # It calls no detector.
            await caller("GET", "/api/detectors")
            assert times(caplog, "list_detectors") == {}
        service.actors.room.set()


async def test_what_is_sent_again_waits_until_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with local_service(tmp_path) as service:
        caller = caller_of(tmp_path, service)
        detector = await caller.detector()
        await caller.rule(detector, "a == 1")
        actor = service.actors.with_detector(detector)
        assert actor is not None
        held = asyncio.Event()

        async def hold(call: str) -> None:
            if call == "handle":
                held.set()
                await asyncio.sleep(5 * SLEPT_S)

        actor.before = hold
        path = f"/api/detectors/{detector}/evaluate"
        body = {"event": {"fields": {"a": 1}, "timestamp_ms": 0}}
        with caplog.at_level(logging.INFO):
            key = {"Idempotency-Key": "1"}
            evaluating = asyncio.create_task(caller("POST", path, body, headers=key))
            await held.wait()
            await asyncio.sleep(SLEPT_S / 2)
            actor.die()
            assert (await evaluating).status == 200
        found = times(caplog, "evaluate")
    assert list(found) == list(TIMES)
    assert found["queued_ms"] >= 1000 * SLEPT_S / 2
