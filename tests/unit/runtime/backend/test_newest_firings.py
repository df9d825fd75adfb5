"""A front end learns how far feeds have grown, and activates no detector for that."""

from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from tests.local_runtime.service import local_service, until

EVENT = b'{"event": {"fields": {"user": "ann"}, "timestamp_ms": 1000}}'


@pytest.mark.parametrize("sync", ["always", "interval", "off"])
async def test_what_fires_is_known_once_it_is_durable_and_when_its_detector_rests(
    tmp_path: Path, sync: str
) -> None:
    async with local_service(tmp_path, journal_sync=sync, journal_sync_interval_s=0.1) as service:
        backend = service.backend
        detector = await backend.create_detector("d")
        added = ops.add_rule("r", "per user exists user", notify=True)
        assert isinstance(await backend.call(detector, added), Done)
        assert await backend.newest_firings([detector, "unknown"]) == {}
        placed = service.scheduler._placed[detector]
        await backend.call(detector, ops.evaluate(EVENT))
        placed.make_room()
        await until(lambda: placed.worker_name is None)
        assert await backend.newest_firings([detector]) == {detector: 1}
        assert placed.worker_name is None
        found = await backend.call(detector, ops.firings(0))
        assert isinstance(found, Done)
        assert b'"seq":1,' in found.result
        await backend.delete_detector(detector)
        assert await backend.newest_firings([detector]) == {}
