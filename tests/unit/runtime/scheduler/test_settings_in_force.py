"""What settings of the runtime do that no other test shows."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.runtime.cluster.actors import ray_workers
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.format.file_names import listing
from tests.local_runtime.actors import MEMORY_BYTES, LocalNodes
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.service import local_service, until

pytestmark = pytest.mark.skipping_clock

ONE = "1" * 32
EVENT = b'{"event": {"fields": {"a": 1}, "timestamp_ms": 1000}}'


def active(folder: Path, **settings: Any) -> OperationExecutor:
    newborn(folder, ONE)
    actor = OperationExecutor(RuntimeSettings(data=folder, **settings))
    actor.activate(ONE, 1)
    return actor


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_as_many_snapshots_are_kept_as_are_asked_for(tmp_path: Path, kept: int) -> None:
    actor = active(tmp_path, snapshots_kept=kept)
    for _ in range(6):
        actor.handle([ops.evaluate(EVENT)])
        assert actor.begin_saving()
        actor.finish_saving()
    (folder,) = (path for path in tmp_path.rglob(ONE) if path.is_dir())
    assert len(listing(path.name for path in folder.iterdir()).snapshots) == kept


@pytest.mark.parametrize(("bytes_max", "taken"), [(1, 1), (1_000_000, 3)])
def test_no_more_answers_are_kept_than_there_is_memory_for(
    tmp_path: Path, bytes_max: int, taken: int
) -> None:
    actor = active(tmp_path, answers_kept_bytes_max=bytes_max)
    given = [actor.handle([ops.evaluate(EVENT, key)]).answers[0] for key in "abc"]
    assert [isinstance(answer, Done) for answer in given] == [number < taken for number in range(3)]
    assert all(answer.entries[0].code == 1401 for answer in given if isinstance(answer, Refused))


@pytest.mark.parametrize("spares", [0, 1, 3])
async def test_so_many_processes_wait_for_a_detector(tmp_path: Path, spares: int) -> None:
    async with local_service(tmp_path, spares=spares) as service:
        await until(lambda: len(service.actors.started) == spares)
        await asyncio.sleep(1)
        assert len(service.actors.started) == spares


@pytest.mark.parametrize(
    ("worker_memory_bytes", "workers"), [(MEMORY_BYTES // 5 * 3, 1), (MEMORY_BYTES // 10, 2)]
)
async def test_a_node_takes_as_many_workers_as_its_memory_has_room_for(
    tmp_path: Path, worker_memory_bytes: int, workers: int
) -> None:
    settings = {"worker_memory_bytes": worker_memory_bytes, "spares": 0, "turn_s": 0.0, "room_wait_s": 0.3}
    async with local_service(
        tmp_path, nodes=LocalNodes(n=8), retry_s=0.01, nodes_s=0.02, **settings
    ) as service:
        for name in ("one", "other"):
            detector_id = await service.backend.create_detector(name)
            await service.backend.call(detector_id, ops.evaluate(EVENT))
        assert sum(not worker.dead for worker in service.actors.started) == workers


async def test_ray_is_asked_for_what_a_worker_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Remote:
        def remote(self, _: RuntimeSettings) -> None:
            raise AssertionError("none is made")

        def options(self, **options: Any) -> "Remote":
            asked.update(options)
            return self

    async def none_is_made(_: object) -> None:
        raise ActorDied("no actor is made")

    monkeypatch.setattr(ray_workers.ray, "remote", lambda **_: lambda _: Remote())
    monkeypatch.setattr(ray_workers, "create_actor", none_is_made)
    settings = RuntimeSettings(data=tmp_path, worker_cpus=0.3, worker_memory_bytes=7_000)
    with pytest.raises(ActorDied):
        await ray_workers.RayWorkers(settings, asyncio.Event().wait, lambda: 1).start(
            frozenset(), "a" * 56, 60.0
        )
    assert (asked["num_cpus"], asked["memory"]) == (0.3, 7_000)
