"""How busy detectors are, as `GET /api/cluster` tells."""

import asyncio
from pathlib import Path

from tests.api.observability.test_refusals import caller_of
from tests.local_runtime.service import local_service


async def test_how_busy_each_detector_is_is_measured_while_it_is_active(tmp_path: Path) -> None:
    async with local_service(tmp_path, load_s=0.01) as service:
        caller = caller_of(tmp_path, service)
        detector = await caller.detector("busy")
        async with asyncio.timeout(60):
            while True:
                await caller.evaluate(detector, {})
                found = (await caller("GET", "/api/cluster")).result
                if found["busiest"]["by_events"]:
                    break
                await asyncio.sleep(0.005)
        (busy,) = found["busiest"]["by_events"]
        assert (busy["id"], busy["name"]) == (detector, "busy")
        (shown,) = [one for worker in found["workers"] for one in worker.get("detectors", ())]
        assert busy["events_per_s"] == shown["events_per_s"] > 0
        assert shown["events"] >= 1
        paged = (await caller("GET", "/api/cluster?limit=1&after=zzz")).result
        assert paged["workers"] == []
        assert [one["id"] for one in paged["busiest"]["by_events"]] == [detector]
