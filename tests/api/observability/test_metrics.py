"""/metrics: what monitors read, and that what happens is counted there."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Sample
from prometheus_client.parser import text_string_to_metric_families

from api.http.app import Application
from api.observability import metrics_page
from api.settings import Settings
from engine.runtime.contract.measures import COUNTERS
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.faulty_files import FaultyFiles
from tests.local_runtime.service import front_end, local_service, until

KEPT_S = 0.2
"""As long as the page is kept in the test of that; elsewhere it is made anew each time."""


async def read(caller: Caller) -> dict[str, float]:
    response = await caller.plain("GET", "/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(response.text)
    return {sample.name: sample.value for family in families for sample in family.samples}


async def families(caller: Caller) -> dict[str, list[Sample]]:
    response = await caller.plain("GET", "/metrics")
    return {family.name: family.samples for family in text_string_to_metric_families(response.text)}


async def test_what_happens_to_detectors_is_counted_and_needs_no_token_to_be_read(tmp_path: Path) -> None:
    files = FaultyFiles()
    settings = Settings(data=tmp_path, bootstrap_token=BOOTSTRAP)
    async with local_service(tmp_path, files=files, retry_s=0.01) as service:
        caller = Caller(Application(settings, service.backend), BOOTSTRAP)
        before = await read(caller)
        assert set(before) >= {
            "rule_detector_ready",
            "rule_detector_detectors_with_problems",
            "rule_detector_front_ends_lost_total",
            *(f"rule_detector_{name}_total" for name in COUNTERS),
        }
        detector = await caller.detector()
        event = {"event": {"fields": {}, "timestamp_ms": 0}}
        path = f"/api/detectors/{detector}/evaluate"
        assert (await caller("POST", path, event)).status == 200
        files.fail_next("sync_data")
        assert (await caller("POST", path, event)).codes == [1502]
        await until(lambda: not service.scheduler.active_detectors)
        failed = await read(caller)
        assert failed["rule_detector_journal_failures_total"] == 1
        assert failed["rule_detector_detectors_with_problems"] == 1
        (problem,) = (await caller("GET", "/readyz")).result["problems"]
        assert detector in problem
        assert "cannot be synced" in problem
        assert (await caller("POST", path, event)).status == 200
        after = await read(caller)
        assert after["rule_detector_detectors_activated_total"] == 2
        assert after["rule_detector_detectors_with_problems"] == 0
        assert (await caller("GET", "/readyz")).result == {"ready": True, "problems": []}
        assert after["rule_detector_journal_records_read_total"] >= 1


async def test_requests_are_counted_by_operation_and_status_over_all_front_ends(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, bootstrap_token=BOOTSTRAP)
    async with local_service(tmp_path) as service, front_end(service) as one, front_end(service) as two:
        first, second = (Caller(Application(settings, each.backend), BOOTSTRAP) for each in (one, two))
        detector = await first.detector()
        path = f"/api/detectors/{detector}/evaluate"
        for caller in (first, first, second):
            await caller("POST", path, {"event": {"fields": {}, "timestamp_ms": 0}})
        await second("POST", path, {"event": {}})
        await second("POST", path + "/batch", {"events": []})
        await first("GET", "/api/nowhere")
        # What the other one counts reaches this one through the scheduler.
        await read(second)
        counted = await families(first)
    requests = {
        (sample.labels["operation"], sample.labels["status"]): sample.value
        for sample in counted["rule_detector_requests"]
    }
    # The two that read the metrics are counted when they have been answered.
    assert requests == {
        ("create_detector", "200"): 1,
        ("evaluate", "200"): 3,
        ("evaluate", "400"): 1,
        ("evaluate_batch", "200"): 1,
        ("other", "404"): 1,
    }
    times = counted["rule_detector_request_seconds"]
    evaluations = [sample for sample in times if sample.labels["operation"] == "evaluate"]
    buckets = [sample.value for sample in evaluations if sample.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 4
    (took_s,) = (sample.value for sample in evaluations if sample.name.endswith("_sum"))
    assert 0 < took_s < 4 * 30


async def test_the_page_is_made_once_for_all_who_want_it_and_its_bytes_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    render = metrics_page.metrics_text

    def counted(*what: Any) -> bytes:
        made.append(what)
        return render(*what)

    monkeypatch.setattr(metrics_page, "metrics_text", counted)
    monkeypatch.setattr(metrics_page, "KEPT_S", KEPT_S)
    settings = Settings(data=tmp_path, bootstrap_token=BOOTSTRAP)
    async with local_service(tmp_path) as service:
        app = Application(settings, service.backend)
        caller = Caller(app, BOOTSTRAP)
        responses = await asyncio.gather(*(caller.plain("GET", "/metrics") for _ in range(100)))
        assert {response.status_code for response in responses} == {200}
        assert len(made) == 1
        one, other = await app.metrics_page.answer(), await app.metrics_page.answer()
        assert one.body is other.body
        await asyncio.sleep(KEPT_S)
        # A caller who leaves takes the page from nobody else.
        leaving, staying = (asyncio.create_task(app.metrics_page.answer()) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await staying).status == 200
        assert len(made) == 2


async def test_callers_without_a_token_have_the_scheduler_asked_once_a_second_for_readiness(
    tmp_path: Path,
) -> None:
    settings = Settings(data=tmp_path, bootstrap_token=BOOTSTRAP)
    async with local_service(tmp_path) as service:
        app = Application(settings, service.backend)
        status, asked = service.backend.scheduler.status, 0

        async def counted() -> Any:
            nonlocal asked
            asked += 1
            return await status()

        service.backend.scheduler.status = counted  # type: ignore[method-assign]
        stranger = Caller(app, "")
        answers = [await stranger.plain("GET", path) for _ in range(50) for path in ("/readyz", "/healthz")]
        assert {answer.status_code for answer in answers} == {200}
        assert 1 <= asked <= 2
        app.announce_shutdown()
        assert (await stranger.plain("GET", "/readyz")).status_code == 503
