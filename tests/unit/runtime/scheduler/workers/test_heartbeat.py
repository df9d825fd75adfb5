"""Workers and nodes that give no sign of life: how soon that is noticed, and what becomes of detectors."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Held
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.detector_worker import BEATS, Callbacks, DetectorWorker, Heartbeat
from engine.runtime.scheduler.workers.worker_pool import WorkerPool
from tests.local_runtime.actors import LocalActors
from tests.local_runtime.service import LocalService, local_service, until
from tests.local_runtime.workers import LocalWorker
from tests.skipping_clock import Skipping, SkippingLoop

pytestmark = pytest.mark.skipping_clock

TIMEOUT_S = 4.0
BEAT_S = TIMEOUT_S / BEATS


class Scene:
    """A pool whose clock is fake, and the workers that it has started."""

    def __init__(self, folder: Path, clock: Skipping, **settings: Any) -> None:
        chosen = RuntimeSettings(data=folder, node_timeout_s=TIMEOUT_S, **{"spares": 0, **settings})
        self.clock = clock
        self.actors = LocalActors(chosen)
        self.pool = WorkerPool(self.actors, chosen)
        self.lost: list[tuple[str, float]] = []
        """The workers whose detectors were told of their death, and when."""

    async def taken(self, node: str = "n", *, alone: bool = False) -> DetectorWorker:
        """A worker with an active detector."""
        worker = await self.pool.take(alone=alone)
        worker.port.node = node
        name = worker.port.name
        died = lambda: self.lost.append((name, self.clock.now_s))  # noqa: E731 -- two words
        worker.enter(len(self.actors.started), Callbacks(lambda _: None, died))
        return worker


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a test over a scene, with a clock that passes as fast as nothing happens."""

    def play(test: Callable[[Scene], Coroutine[Any, Any, None]], **settings: Any) -> None:
        loop = SkippingLoop()

        async def whole() -> None:
            scene = Scene(tmp_path, loop.clock, **settings)
            try:
                await test(scene)
            finally:
                await scene.pool.close()

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(whole())

    return play


def silence(worker: DetectorWorker) -> LocalWorker:
    port = worker.port
    assert isinstance(port, LocalWorker)
    port.silent = True
    return port


def test_a_heartbeat_is_lost_by_beats_in_a_row_and_later_during_an_activation() -> None:
    heartbeat = Heartbeat()
    for _ in range(BEATS - 1):
        heartbeat.beat(answered=False)
    assert heartbeat.doubtful
    assert not heartbeat.dead(activating=False)
    heartbeat.beat(answered=True)
    assert not heartbeat.doubtful
    for _ in range(BEATS):
        heartbeat.beat(answered=False)
    assert heartbeat.dead(activating=False)
    assert not heartbeat.dead(activating=True)


def test_a_silent_worker_is_lost_in_time_and_its_neighbour_stays(play: Play) -> None:
    async def test(scene: Scene) -> None:
        one, other = await scene.taken(), await scene.taken()
        await asyncio.sleep(100)
        assert not scene.lost
        silent_s = scene.clock.now_s
        silence(one)
        await asyncio.sleep(100)
        ((name, lost_s),) = scene.lost
        assert name == one.port.name
        assert TIMEOUT_S <= lost_s - silent_s <= TIMEOUT_S + 2 * BEAT_S
        assert one.dead
        assert not other.dead
        # The node answers: it has other workers that do.
        await scene.taken()
        assert scene.actors.avoided[-1] == frozenset()

    play(test)


def test_a_silent_node_is_avoided_for_a_while(play: Play) -> None:
    async def test(scene: Scene) -> None:
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

    play(test)


@pytest.mark.parametrize("alone", [False, True])
def test_a_doubtful_worker_is_given_no_detector_until_it_answers(play: Play, alone: bool) -> None:
    async def test(scene: Scene) -> None:
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

    play(test, spares=1)


def test_who_was_stopped_itself_loses_nobody(play: Play) -> None:
    async def test(scene: Scene) -> None:
        worker = await scene.taken()
        for _ in range(20):
            # The beat is on its way when the time passes, and the answer is read after that.
            silence(worker).silent = True
            await asyncio.sleep(BEAT_S)
            scene.clock.now_s += 1_000
            silence(worker).silent = False
            await asyncio.sleep(BEAT_S)
        assert not scene.lost

    play(test)


def test_a_start_that_takes_long_does_not_keep_others_from_starting(play: Play) -> None:
    async def test(scene: Scene) -> None:
        begin = scene.actors.start
        begun = 0

        async def start(*_: object) -> LocalWorker:
            nonlocal begun
            begun += 1
            if begun == 1:
                await asyncio.sleep(1_000)
            return await begin()

        scene.actors.start = start  # type: ignore[method-assign]
        began_s = scene.clock.now_s
        await scene.taken()
        assert begun == 2
        assert scene.clock.now_s - began_s < 20

    play(test, starts_at_once=1)


# -- in a service, by the real clock -------------------------------------------------------------------------


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


def test_a_dead_worker_is_told_with_its_process_and_its_detectors(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(scene: Scene) -> None:
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

    play(test)


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
        await asyncio.sleep(HUNG_S / 3)
        (problem,) = (await service.scheduler.status()).problems
        assert problem == f"detector {ids[0]}: it has been at one step for 15 s; does its disk answer?"
        goes_on.set()
        await stalls
        await until(lambda: not service.scheduler._problems.current)
        assert (await service.scheduler.status()).problems == []
