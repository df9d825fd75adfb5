"""The ways in which a worker is found dead."""

import asyncio
from pathlib import Path

import pytest

from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Held
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.detector_worker import DetectorWorker
from engine.runtime.scheduler.workers.heartbeat import AvoidedNodes
from engine.runtime.scheduler.workers.worker_watch import WorkerWatch
from tests.local_runtime.actors import LocalActors
from tests.local_runtime.workers import LocalWorker
from tests.skipping_clock import SkippingLoop

pytestmark = pytest.mark.skipping_clock

HUNG_S = 100.0
NODE_TIMEOUT_S = 4.0


class Scene:
    """A watched worker, and what is told of it."""

    def __init__(self, port: LocalWorker, settings: RuntimeSettings) -> None:
        self.port = port
        self.worker = DetectorWorker(port)
        self.avoided = AvoidedNodes()
        self.doubted = 0
        self.died: list[bool] = []
        """Whether it was silent, for each time that it was found dead."""
        WorkerWatch(settings, self.avoided, self._doubt, self._note_death, self._drop).begin(self.worker)

    def _doubt(self) -> None:
        self.doubted += 1

    def _drop(self, worker: DetectorWorker, epoch: int) -> None:
        raise AssertionError(f"{epoch} was not granted to {worker}")

    def _note_death(self, worker: DetectorWorker, *, silent: bool) -> None:
        assert worker is self.worker
        self.died.append(silent)
        for watcher in worker.watchers:
            watcher.cancel()


@pytest.fixture
async def scene(tmp_path: Path):
    settings = RuntimeSettings(data=tmp_path, hung_s=HUNG_S, node_timeout_s=NODE_TIMEOUT_S)
    scene = Scene(await LocalActors(settings).start(), settings)
    yield scene
    for watcher in scene.worker.watchers:
        watcher.cancel()
    await asyncio.gather(*scene.worker.watchers, return_exceptions=True)


async def test_one_that_answers_is_not_found_dead(scene: Scene) -> None:
    await asyncio.sleep(10 * HUNG_S)
    assert (scene.died, scene.doubted) == ([], 0)


async def test_the_end_of_its_process_is_noticed_at_once(scene: Scene) -> None:
    await asyncio.sleep(1)
    scene.port.die()
    await asyncio.sleep(0.1)
    assert scene.died == [False]


async def test_one_whose_event_loop_hangs_is_dead_though_its_process_answers(scene: Scene) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    scene.port._scheduler.ask = hang  # type: ignore[method-assign]
    await asyncio.sleep(HUNG_S)
    assert scene.died == []
    await asyncio.sleep(0.3 * HUNG_S)
    assert scene.died == [False]


async def test_time_in_which_the_watching_loop_was_held_up_is_no_silence(scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)

    async def answer_meanwhile(*_: object) -> list[Held]:
        loop.clock.now_s += 10 * HUNG_S
        # The answer has come, but timers are due before it is read.
        for _ in range(4):
            await asyncio.sleep(0)
        return []

    scene.port._scheduler.ask = answer_meanwhile  # type: ignore[method-assign]
    scene.port.beat = answer_meanwhile  # type: ignore[method-assign,assignment]
    await asyncio.sleep(1_000 * HUNG_S)
    assert (scene.died, scene.doubted) == ([], 0)


async def test_one_that_cannot_be_reached_is_dead(scene: Scene) -> None:
    async def fail(*_: object) -> None:
        raise ActorDied("no connection")

    scene.port._scheduler.ask = fail  # type: ignore[method-assign]
    await asyncio.sleep(HUNG_S)
    assert scene.died == [False]


@pytest.mark.parametrize(("activating", "avoided", "factor"), [(0, False, 1), (1, False, 4), (1, True, 1)])
async def test_a_silent_one_is_doubtful_first_and_has_longer_while_it_activates(
    scene: Scene, activating: int, avoided: bool, factor: int
) -> None:
    scene.worker.taken = activating
    scene.port.silent = True
    if avoided:
        scene.avoided.add(scene.port.node)
    await asyncio.sleep(0.8 * NODE_TIMEOUT_S)
    assert (scene.doubted, scene.died) == (1, [])
    await asyncio.sleep((factor - 0.9) * NODE_TIMEOUT_S)
    assert scene.died == []
    await asyncio.sleep(0.5 * NODE_TIMEOUT_S)
    assert scene.died == [True]
