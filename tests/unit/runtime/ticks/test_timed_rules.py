"""Timed rules fire in detectors that nobody asks anything: active, passive, and killed ones."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.front_end.backend import Backend
from tests.local_runtime.alarms import SECOND, Clock, event
from tests.local_runtime.service import local_service

pytestmark = pytest.mark.skipping_clock

SILENT = "per host (not once within 30s beat == 1)"


async def watched(backend: Backend, clock: Clock, *hosts: str) -> tuple[str, list[int]]:
    """Make a detector that tells which hosts are silent; return when each one has been heard."""
    detector = await backend.create_detector("hosts")
    await backend.call(detector, ops.add_rule("silent", SILENT, notify=True, timed=True))
    beats = []
    for host in hosts:
        beats.append(clock.now_us())
        await backend.call(detector, event(beats[-1], host=host, beat=1))
        await asyncio.sleep(1)
    return detector, beats


async def fired(backend: Backend, detector: str) -> list[Any]:
    """What the feed has: numbers, keys and times."""
    answer = await backend.call(detector, ops.firings(0, 100))
    found = json.loads(answer.result)["firings"]  # type: ignore[union-attr]
    return [(one["seq"], one["keys"]["host"], round(one["time_ms"] * 1_000), one["timed"]) for one in found]


def expected(beats: list[int], *hosts: str) -> list[Any]:
    silent_us = 30 * SECOND + 1
    return [(seq, host, beats[seq - 1] + silent_us, True) for seq, host in enumerate(hosts, 1)]


@pytest.mark.parametrize("passivate_after_s", [600.0, 0.5])
async def test_a_silent_host_is_told_once_at_its_own_time(passivate_after_s: float, tmp_path: Path) -> None:
    clock = Clock()
    settings = {"passivate_after_s": passivate_after_s}
    async with local_service(tmp_path, now_us=clock.now_us, **settings) as service:
        detector, beats = await watched(service.backend, clock, "a", "b")
        await asyncio.sleep(20)
        if passivate_after_s < 1:
            assert service.scheduler.active_detectors == 0
        await asyncio.sleep(60)
        assert await fired(service.backend, detector) == expected(beats, "a", "b")
        await asyncio.sleep(90)
        assert len(await fired(service.backend, detector)) == 2
        assert (await service.backend.status()).problems == []
        answer = await service.backend.call(detector, event(clock.now_us(), host="c"))
        assert [one["name"] for one in json.loads(answer.result)["actions"]] == ["silent"]


@pytest.mark.parametrize("away_s", [1, 3_600])
async def test_a_killed_service_tells_what_it_has_missed_at_the_time_when_it_was_due(
    away_s: int, tmp_path: Path
) -> None:
    clock = Clock()
    async with local_service(tmp_path / "data", now_us=clock.now_us) as service:
        detector, beats = await watched(service.backend, clock, "a")
        shutil.copytree(tmp_path / "data", tmp_path / "left")
    clock.passed_s += away_s
    async with local_service(tmp_path / "left", now_us=clock.now_us) as service:
        await asyncio.sleep(3 if away_s > 30 else 60)
        assert service.scheduler.active_detectors == 0
        assert await fired(service.backend, detector) == expected(beats, "a")


async def test_a_caller_may_let_time_pass_and_the_answer_has_what_fires(tmp_path: Path) -> None:
    clock = Clock()
    async with local_service(tmp_path, now_us=clock.now_us, tick_s=0.0) as service:
        detector, beats = await watched(service.backend, clock, "a")
        await asyncio.sleep(40)
        body = json.dumps({"timestamp_ms": clock.now_us() / 1_000}).encode()
        answer = await service.backend.call(detector, ops.tick(body))
        [action] = json.loads(answer.result)["actions"]  # type: ignore[union-attr]
        assert (action["type"], action["keys"], action["timed"]) == ("notify", {"host": "a"}, True)
        assert round(action["time_ms"] * 1_000) == beats[0] + 30 * SECOND + 1
        assert await fired(service.backend, detector) == expected(beats, "a")
