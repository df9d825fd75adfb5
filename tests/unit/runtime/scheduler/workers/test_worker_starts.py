"""Starts of workers, one after another: which count, which are repeated, and what is said of room."""

import asyncio
from pathlib import Path

import pytest

from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.worker_starts import WorkerStarts
from tests.local_runtime.actors import LocalActors, LocalNodes

pytestmark = pytest.mark.skipping_clock


class Scene:
    """Starts on a node, and what is told of them."""

    def __init__(self, folder: Path) -> None:
        settings = RuntimeSettings(data=folder, retry_s=1.0, starts_at_once=2, worker_cpus=1.0)
        self.cluster = LocalNodes(n=8)
        self.nodes = Nodes(self.cluster, settings)
        self.actors = LocalActors(settings, nodes=self.cluster)
        self.told: list[str] = []
        self.starts = WorkerStarts(
            self.actors,
            settings,
            self.nodes,
            started=lambda port: self.told.append(port.name),
            over=lambda: self.told.append("over"),
            room_changed=lambda: self.told.append("room" if self.starts.no_room is None else "no room"),
        )


@pytest.fixture
async def scene(tmp_path: Path):
    scene = Scene(tmp_path)
    await scene.nodes.look()
    yield scene
    await scene.starts.close()


async def test_a_start_counts_for_its_node_until_there_is_a_worker(scene: Scene) -> None:
    scene.starts.begin("n")
    scene.starts.begin()
    assert (scene.starts.pending("n"), scene.starts.pending(None)) == (1, 1)
    await asyncio.sleep(0.1)
    assert sorted(scene.told) == ["local-0", "local-1", "over", "over"]
    assert scene.starts.pending("n") == scene.starts.pending(None) == 0


async def test_a_failed_start_is_over_only_after_a_while(scene: Scene) -> None:
    scene.actors.refuse = True
    scene.starts.begin()
    await asyncio.sleep(0.9)
    assert scene.starts.pending(None) == 1
    await asyncio.sleep(0.2)
    assert scene.starts.pending(None) == 0
    assert scene.told == ["over"]


async def test_slow_starts_count_no_longer_but_only_as_many_as_may_begin_at_once(scene: Scene) -> None:
    for is_last in (False, True):
        scene.cluster.cpus.clear()
        await scene.nodes.look()
        scene.actors.room.clear()
        for _ in range(3):
            scene.starts.begin()
        await asyncio.sleep(9)
        assert scene.starts.pending(None) == 3
        await asyncio.sleep(2)
        assert scene.starts.pending(None) == 1
        assert scene.told == ["over", "over"]
        if is_last:
            await scene.starts.close()
        else:
            scene.cluster.cpus["n"] = 8
            scene.actors.room.set()
            await asyncio.sleep(0.1)
        assert scene.told.count("over") == 5
        scene.told.clear()


async def test_starts_without_room_are_repeated_once_there_is_some(scene: Scene) -> None:
    scene.cluster.cpus["n"] = 0.5
    scene.actors.room.clear()
    scene.starts.begin()
    await asyncio.sleep(0.1)
    assert scene.told == ["no room"]
    scene.starts.look_for_room()
    await asyncio.sleep(11)
    assert scene.starts.pending(None) == 1, "it is not slow: it waits for room"
    scene.cluster.cpus["n"] = 1
    await scene.nodes.look()
    scene.starts.look_for_room()
    await asyncio.sleep(0.1)
    assert scene.starts.pending(None) == 0
    assert scene.told == ["no room", "room", "over"]


async def test_an_avoided_node_is_chosen_if_no_other_has_room(scene: Scene) -> None:
    scene.nodes.avoid("n")
    scene.starts.begin()
    await asyncio.sleep(0.1)
    (worker,) = scene.actors.started
    assert worker.node == "n"
    assert scene.actors.avoided == [frozenset()]


async def test_a_worker_on_a_node_that_is_drained_meanwhile_is_ended(scene: Scene) -> None:
    scene.cluster.cpus["n"] = 0.5
    scene.actors.room.clear()
    scene.starts.begin()
    await asyncio.sleep(0.1)
    scene.cluster.cpus["n"] = 1
    await scene.nodes.drain("n", draining=True)
    scene.actors.room.set()
    await asyncio.sleep(0.1)
    assert [worker.dead for worker in scene.actors.started] == [True]
    assert scene.told == ["no room", "room", "over"]
