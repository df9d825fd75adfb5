"""Messages of a front end, and their answers, are lost once: its detectors answer soon after."""

import asyncio
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from tests.integration.conftest import RayBackend
from tests.local_runtime.losses import Loss

pytestmark = pytest.mark.ray

EVENT = b'{"event": {"fields": {}, "timestamp_ms": 1}}'
SECONDS = 15
"""Half of the deadline of requests, so what was lost was not waited for."""


async def test_whatever_a_front_end_loses_once_its_detectors_answer_soon(
    ray_backend: RayBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ray_backend(tmp_path, deadline_s=2 * SECONDS, spares=1) as backend:
        await backend.call(await backend.create_detector("first"), ops.evaluate(EVENT))
        for kind in ("ask create_detector", "answer create_detector", "ask route", "answer route", "Batch"):
            loss = Loss(kind)
            with monkeypatch.context() as patch:
                loss.install(patch)
                async with asyncio.timeout(SECONDS):
                    detector = await backend.create_detector(kind)
                    # With a key, it is sent again.
                    assert isinstance(await backend.call(detector, ops.evaluate(EVENT, "key")), Done)
            assert loss.lost == 1, kind
