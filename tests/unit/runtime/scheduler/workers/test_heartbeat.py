"""Workers and nodes that give no sign of life: how soon that is noticed, and what becomes of detectors."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Held
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.detector_worker import BEATS, Callbacks, DetectorWorker
from engine.runtime.scheduler.workers.worker_pool import WorkerPool
from tests.local_runtime.actors import LocalActors, LocalNodes
from tests.local_runtime.service import LocalService, local_service, until
from tests.local_runtime.workers import LocalWorker

pytestmark = pytest.mark.skipping_clock

TIMEOUT_S = 4.0
BEAT_S = TIMEOUT_S / BEATS


class Scene:
    """A pool, and the workers that it has started."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        chosen = RuntimeSettings(data=folder, node_timeout_s=TIMEOUT_S, **{"spares": 0, **settings})
        self.actors = LocalActors(chosen)
        self.pool = WorkerPool(self.actors, chosen, Nodes(LocalNodes(), chosen))
        self.lost: list[tuple[str, float]] = []
        """The workers whose detectors were told of their death, and when."""

    async def taken(self, node: str = "n", *, alone: bool = False) -> DetectorWorker:
        """A worker with an active detector."""
        worker = await self.pool.take(alone=alone)
        worker.port.node = node
        name = worker.port.name
        died = lambda: self.lost.append((name, now_s()))  # noqa: E731 -- two words
        worker.enter(len(self.actors.started), Callbacks(lambda _: None, died))
        return worker


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, **getattr(request, "param", {}))
    yield made
    await made.pool.close()


def silence(worker: DetectorWorker) -> None:
    assert isinstance(worker.port, LocalWorker)
    worker.port.silent = True


async def test_a_silent_worker_is_lost_in_time_and_its_neighbour_stays(scene: Scene) -> None:
    one, other = await scene.taken(), await scene.taken()
    await asyncio.sleep(100)
    assert not scene.lost
    silent_s = now_s()
    silence(one)
    await asyncio.sleep(TIMEOUT_S + 2 * BEAT_S)
    ((name, lost_s),) = scene.lost
    assert name == one.port.name
    assert TIMEOUT_S <= lost_s - silent_s <= TIMEOUT_S + 2 * BEAT_S
    assert (one.dead, other.dead) == (True, False)
    # The node answers: it has other workers that do.
    await scene.taken()
    assert scene.actors.avoided[-1] == frozenset()


async def test_a_silent_node_is_avoided_for_a_while(scene: Scene) -> None:
    away = [await scene.taken("away") for _ in range(3)]
    await scene.taken("here")
    for worker in away:
        silence(worker)
    await asyncio.sleep(TIMEOUT_S + 2 * BEAT_S)
    assert [name for name, _ in scene.lost] == [worker.port.name for worker in away]
    await scene.taken()
    assert scene.actors.avoided[-1] == {"away"}
    await asyncio.sleep(100)
    await scene.taken()
    assert scene.actors.avoided[-1] == frozenset()


@pytest.mark.parametrize("scene", [{"spares": 1}], indirect=True, ids=["one spare"])
@pytest.mark.parametrize("alone", [False, True])
async def test_a_doubtful_worker_is_given_no_detector_until_it_answers(scene: Scene, alone: bool) -> None:
    scene.pool.fill()
    await asyncio.sleep(1)
    (spare,) = scene.actors.started
    spare.silent = True
    await asyncio.sleep(2.5 * BEAT_S)
    taken = await scene.taken(alone=alone)
    assert taken.port is not spare
    assert not spare.dead
    spare.silent = False
    await asyncio.sleep(100)
    assert spare in [(await scene.taken()).port for _ in range(2)]


async def test_a_dead_worker_is_told_with_its_process_and_its_detectors(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await scene.pool.take()
    for epoch in range(12):
        worker.enter(epoch, Callbacks(lambda _: None, lambda: None, f"d{epoch}"))
    port = worker.port
    assert isinstance(port, LocalWorker)
    port.die()
    await asyncio.sleep(10)
    assert worker.dead
    told = f"the detector worker {port.name} (pid 1 on the node n) died; its detectors: d0, d1, "
    assert told in caplog.text
    assert "d9 and 2 more" in caplog.text


# -- in a service ------------------------------------------------------------------------------------------


def event(timestamp_ms: float, key: str = "") -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": {}, "timestamp_ms": timestamp_ms}}).encode(), key)


async def stopped(service: LocalService, detector: str) -> tuple[LocalWorker, asyncio.Event]:
    """Stop the worker of a detector as a signal does; it goes on with the event. Ray cannot end it either."""
    worker = service.actors.with_detector(detector)
    assert worker is not None
    goes_on = asyncio.Event()

    async def wait(_: str) -> None:
        await goes_on.wait()

    async def not_ended() -> None:
        return None

    worker.before, worker.silent, worker.end = wait, True, not_ended  # type: ignore[method-assign]
    return worker, goes_on


async def test_a_stopped_worker_is_replaced_and_finds_itself_fenced_when_it_goes_on(tmp_path):
    async with local_service(tmp_path, spares=1, node_timeout_s=0.4, hung_s=30.0) as service:
        backend = service.backend
        detector = await backend.create_detector("one")
        assert isinstance(await backend.call(detector, event(1)), Done)
        old, goes_on = await stopped(service, detector)
        in_flight = asyncio.create_task(backend.call(detector, event(2)))
        with_key = asyncio.create_task(backend.call(detector, event(2, "key")))
        async with asyncio.timeout(10):
            with pytest.raises(DetectorUnavailable) as unknown:
                await in_flight
            assert unknown.value.code == 1502
            # Its front end sends it again.
            assert isinstance(await with_key, Done)
            assert isinstance(await backend.call(detector, event(3)), Done)
        (new,) = [one for one in service.actors.started if detector in one.hosts and one is not old]
        # What was in flight is executed now, and must neither count nor answer.
        goes_on.set()
        await until(lambda: not old.hosts)
        assert isinstance(await backend.call(detector, event(4)), Done)
        assert new.actor._active.detector.events_seen == 4
        assert service.actors.with_detector(detector) is new


async def test_a_worker_with_a_long_batch_is_not_taken_for_dead(tmp_path):
    async with local_service(tmp_path, spares=1, node_timeout_s=0.2, hung_s=30.0) as service:
        detector = await service.backend.create_detector("one")
        await service.backend.call(detector, event(1))
        worker, goes_on = await stopped(service, detector)
        worker.silent = False
        in_flight = asyncio.create_task(service.backend.call(detector, event(2)))
        await asyncio.sleep(1.5)
        assert not in_flight.done()
        goes_on.set()
        assert isinstance(await in_flight, Done)
        assert service.actors.with_detector(detector) is worker


HUNG_S = 60.0


async def test_a_worker_that_makes_no_progress_is_a_problem_until_it_does(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, spares=1) as service:
        await until(lambda: bool(service.scheduler._workers.all))
        (worker,) = service.scheduler._workers.all
        goes_on = asyncio.Event()

        async def held() -> list[Held]:
            await goes_on.wait()
            return []

        worker.port.held = held  # type: ignore[method-assign]
        assert (await service.backend.status()).problems == []
        await asyncio.sleep(HUNG_S * 3 / 8)
        (problem,) = (await service.scheduler.status()).problems
        assert re.search(
            r"\(pid 1 on the node n\) has made no progress for 2\d s; does its disk answer\?", problem
        )
        goes_on.set()
        await asyncio.sleep(HUNG_S / 2)
        assert (await service.scheduler.status()).problems == []


async def test_an_activation_that_takes_long_is_a_problem_until_it_is_over(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, spares=1) as service:
        detector_id = await service.backend.create_detector("one")
        await until(lambda: bool(service.scheduler._workers.all))
        (worker,) = service.scheduler._workers.all
        goes_on, activate = asyncio.Event(), worker.port.activate

        async def stalls(*arguments: object) -> object:
            await goes_on.wait()
            return await activate(*arguments)  # type: ignore[arg-type]

        worker.port.activate = stalls  # type: ignore[method-assign, assignment]
        routed = asyncio.create_task(service.scheduler.route(detector_id, 0))
        await asyncio.sleep(HUNG_S / 3)
        (problem,) = (await service.scheduler.status()).problems
        assert f"detector {detector_id}: its activation has taken 20 s" in problem
        goes_on.set()
        await routed
        assert (await service.scheduler.status()).problems == []


async def test_a_detector_that_makes_no_progress_is_a_problem_though_its_worker_does(tmp_path: Path) -> None:
    async with local_service(tmp_path, hung_s=HUNG_S, detectors_per_worker=4, spares=1) as service:
        ids = [await service.backend.create_detector(name) for name in ("one", "other")]
        for detector_id in ids:
            await service.backend.call(detector_id, ops.add_rule("r", "a == 1"))
        worker = service.actors.with_detector(ids[0])
        assert worker is not None
        goes_on = asyncio.Event()
        asked: list[str] = []

        async def before(call: str) -> None:
            if call == "handle" and not asked:
                asked.append(call)
                await goes_on.wait()

        worker.before = before
        stalls = asyncio.create_task(service.backend.call(ids[0], ops.rules()))
        await until(lambda: asked)
        await service.backend.call(ids[1], ops.rules())
        # As long as a batch may take.
        await asyncio.sleep(HUNG_S / 3)
        assert (await service.scheduler.status()).problems == []
        await asyncio.sleep(HUNG_S / 10)
        (problem,) = (await service.scheduler.status()).problems
        assert problem == f"detector {ids[0]}: it has been at one step for 24 s; does its disk answer?"
        goes_on.set()
        await stalls
        await until(lambda: not service.scheduler._problems.current)
        assert (await service.scheduler.status()).problems == []
