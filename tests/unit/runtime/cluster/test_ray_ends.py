"""Whom a process ends through Ray: nobody whom a successor of it may need."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.cluster import ray_calls
from engine.runtime.cluster.actors import ray_workers
from engine.runtime.cluster.actors.ray_workers import RayWorkers
from engine.runtime.cluster.ray_calls import RayActor
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.settings import RuntimeSettings
from tests.local_runtime.service import until

pytestmark = pytest.mark.skipping_clock


class Ray:
    """What Ray is told, and whether its control store answers."""

    def __init__(self) -> None:
        self.answers = True
        self.killed: list[Any] = []


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ray]:
    told = Ray()
    monkeypatch.setattr(ray_calls, "control_store_answers", lambda: told.answers)
    monkeypatch.setattr(ray_calls.ray, "kill", told.killed.append)
    monkeypatch.setattr(ray_workers, "_END_AGAIN_S", 0.01)
    return told


async def test_without_the_control_store_nothing_is_left_with_ray_that_would_end_an_actor_later(
    ray: Ray,
) -> None:
    ray.answers = False
    await RayActor("directory", "name").end()
    ray.answers = True
    await asyncio.sleep(0.05)
    assert ray.killed == []
    await RayActor("directory", "name").end()
    assert ray.killed == ["directory"]


async def test_a_directory_ends_a_worker_once_it_is_certain_that_it_has_no_successor(
    ray: Ray, tmp_path: Path
) -> None:
    ray.answers = False
    asked = 0
    certain = asyncio.Event()

    async def may_end() -> None:
        nonlocal asked
        asked += 1
        if not certain.is_set():
            raise DetectorUnavailable(STARTING, "the disk does not answer")

    workers = RayWorkers(RuntimeSettings(data=tmp_path), may_end, lambda: 1)
    await workers._end(RayActor("worker", "name"))
    await asyncio.sleep(0.05)
    assert asked == 0
    ray.answers = True
    await until(lambda: asked > 1)
    assert ray.killed == []
    certain.set()
    await until(lambda: ray.killed == ["worker"])
    assert not workers._endings
