"""Timed rules fire by themselves on real processes: in active, passive and killed detectors."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.measures import DUE_ACTIVATIONS
from engine.runtime.contract.requests import operations as ops
from engine.runtime.front_end.backend import Backend

RayBackend = Callable[..., AbstractAsyncContextManager[Backend]]

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="module")]

SILENT_S = 4
SILENT = f"per host (not once within {SILENT_S}s beat == 1)"


async def ask(backend: Backend, detector: str, operation: ops.Operation) -> Any:
    answer = await backend.call(detector, operation)
    assert isinstance(answer, Done), answer
    return json.loads(answer.result)


async def watched(backend: Backend) -> tuple[str, int]:
    """Make a detector that waits for a host; return when that was heard, in milliseconds."""
    detector = await backend.create_detector("hosts")
    await ask(backend, detector, ops.add_rule("silent", SILENT, notify=True, timed=True))
    now_ms = time.time_ns() // 1_000_000
    event = {"fields": {"host": "web-1", "beat": 1}, "timestamp_ms": now_ms}
    await ask(backend, detector, ops.evaluate(json.dumps({"event": event}).encode()))
    return detector, now_ms


async def told(backend: Backend, detector: str) -> None:
    """Wait until its feed has a firing, which keeps no detector awake."""
    async with asyncio.timeout(60):
        while not await backend.newest_firings([detector]):  # noqa: ASYNC110 -- it has no event
            await asyncio.sleep(0.1)


async def firings(backend: Backend, detector: str) -> list[tuple[int, float]]:
    found = await ask(backend, detector, ops.firings(0, 100))
    return [(one["seq"], one["time_ms"]) for one in found["firings"]]


@pytest.mark.parametrize("passivate_after_s", [600.0, 0.2], ids=["active", "passive"])
async def test_a_silent_host_is_told_once_without_any_event(
    ray_backend: RayBackend, passivate_after_s: float, tmp_path: Path
) -> None:
    async with ray_backend(tmp_path, passivate_after_s=passivate_after_s, spares=1) as backend:
        detector, heard_ms = await watched(backend)
        await told(backend, detector)
        told_s = time.time() - heard_ms / 1_000 - SILENT_S
        print(f"told {told_s:.2f} s after it was due")
        # It may also be woken to find out when something is due.
        assert ((await backend.status()).counts[DUE_ACTIVATIONS] > 0) is (passivate_after_s < 1)
        for _ in range(2):
            assert await firings(backend, detector) == [(1, heard_ms + SILENT_S * 1_000 + 0.001)]
            await asyncio.sleep(2)


async def test_a_detector_whose_process_is_killed_fires_in_another(
    ray_backend: RayBackend, tmp_path: Path
) -> None:
    async with ray_backend(tmp_path, spares=1) as backend:
        detector, heard_ms = await watched(backend)
        workers = (await backend.cluster()).workers
        [worker] = [one for one in workers if detector in [each.id for each in one.detectors]]
        assert worker.process is not None
        os.kill(worker.process.pid, signal.SIGKILL)
        await told(backend, detector)
        assert await firings(backend, detector) == [(1, heard_ms + SILENT_S * 1_000 + 0.001)]
