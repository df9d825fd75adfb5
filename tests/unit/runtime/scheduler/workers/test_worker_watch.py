"""How a worker is declared dead."""

import asyncio
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.measures import DETECTORS_LOST
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Held, Report
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.detector_worker import Callbacks, DetectorWorker, WorkerWatch
from tests.local_runtime.actors import LocalActors, LocalNodes
from tests.local_runtime.service import local_service, until
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
        self.nodes = Nodes(LocalNodes(), settings)
        self.doubted = 0
        self.died: list[bool] = []
        """Whether it was silent, for each time that it was declared dead."""
        WorkerWatch(settings, self.nodes, self._doubt, self._note_death, self._drop).begin(self.worker)

    def _doubt(self) -> None:
        self.doubted += 1

    def _drop(self, worker: DetectorWorker, epoch: int) -> None:
        raise AssertionError(f"{epoch} was not granted to {worker}")

    def _note_death(self, worker: DetectorWorker, silent: bool) -> None:
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

    scene.port.client.ask = hang  # type: ignore[method-assign]
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

    scene.port.client.ask = answer_meanwhile  # type: ignore[method-assign]
    scene.port.beat = answer_meanwhile  # type: ignore[method-assign,assignment]
    await asyncio.sleep(1_000 * HUNG_S)
    assert (scene.died, scene.doubted) == ([], 0)


async def test_one_that_cannot_be_reached_is_dead(scene: Scene) -> None:
    async def fail(*_: object) -> None:
        raise ActorDied("no connection")

    scene.port.client.ask = fail  # type: ignore[method-assign]
    await asyncio.sleep(HUNG_S)
    assert scene.died == [False]


@pytest.mark.parametrize(("activating", "avoided", "factor"), [(0, False, 1), (1, False, 4), (1, True, 1)])
async def test_a_silent_one_is_doubtful_first_and_has_longer_while_it_activates(
    scene: Scene, activating: int, avoided: bool, factor: int
) -> None:
    scene.worker.taken = activating
    scene.port.silent = True
    if avoided:
        scene.nodes.avoid(scene.port.node)
    await asyncio.sleep(0.8 * NODE_TIMEOUT_S)
    assert (scene.doubted, scene.died) == (1, [])
    await asyncio.sleep((factor - 0.9) * NODE_TIMEOUT_S)
    assert scene.died == []
    await asyncio.sleep(0.5 * NODE_TIMEOUT_S)
    assert scene.died == [True]


EVENT = ops.evaluate(b'{"event": {"fields": {}, "timestamp_ms": 1}}')


async def test_an_activation_that_nobody_granted_is_dropped(tmp_path: Path) -> None:
    async with local_service(tmp_path, spares=1, detectors_per_worker=2) as service:
        detector, other = [await service.backend.create_detector(name) for name in ("one", "two")]
        assert isinstance(await service.backend.call(detector, EVENT), Done)
        worker = service.actors.with_detector(detector)
        assert worker is not None
        epoch = await service.scheduler.catalogue.lease(other)
        assert epoch is not None
        await worker.activate(other, epoch)
        assert worker.hosts == {detector, other}
        async with asyncio.timeout(5):
            await until(lambda: worker.hosts == {detector})
        assert not worker.dead


class Port(LocalWorker):
    """A worker that has what a test says, at one look after another."""

    looks: list[list[Held]]
    told: list[tuple[int, bool]]

    async def held(self) -> list[Held]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def make_room(self, epoch: int, *, wanted: bool = True) -> None:
        self.told.append((epoch, wanted))


HELD, WANTED = Held("d", 1), Held("d", 1, room_wanted=True)


@pytest.mark.parametrize(
    ("active", "pending", "held", "mends"),
    [
        ((), (), [], []),
        ((1,), (), [HELD], []),
        ((1,), (), [], ["over 1"]),
        ((1,), (), [Held("d", 2)], ["over 1", "drop 2"]),
        ((), (), [HELD], ["drop 1"]),
        ((), (), [Held("d", 1, activating=True)], ["drop 1"]),
        ((), (1,), [], []),
        ((), (1,), [WANTED], []),
        ((-1,), (), [HELD], ["tell 1 True"]),
        ((1,), (), [WANTED], ["tell 1 False"]),
        ((-1,), (), [WANTED], []),
    ],
)
async def test_only_what_differs_twice_in_a_row_is_mended(
    tmp_path: Path, active: tuple[int, ...], pending: tuple[int, ...], held: list[Held], mends: list[str]
) -> None:
    """A negative epoch in `active` means that another detector waits for the slot."""
    settings = RuntimeSettings(data=tmp_path, hung_s=HUNG_S)
    port = Port("w", OperationExecutor, settings)
    mended: list[str] = []
    worker = DetectorWorker(port, pending=set(pending))
    for epoch in active:

        def reported(report: Report) -> None:
            if report.ended is not None:
                mended.append(f"over {report.epoch}")

        wanted = epoch < 0
        worker.enter(abs(epoch), Callbacks(reported, lambda: None, room_wanted=lambda wanted=wanted: wanted))
    same = [Held("d", abs(epoch), room_wanted=epoch < 0) for epoch in active]
    port.looks, port.told = [held, same, held, same, held, held, same], []
    watch = WorkerWatch(
        settings,
        Nodes(LocalNodes(), settings),
        lambda: None,
        lambda *_: None,
        lambda _, epoch: mended.append(f"drop {epoch}"),
    )
    watch.begin(worker)
    await asyncio.sleep(4.5)
    assert mended + port.told == []
    await asyncio.sleep(3)
    assert mended + [f"tell {epoch} {wanted}" for epoch, wanted in port.told] == mends
    for watcher in worker.watchers:
        watcher.cancel()


async def test_a_worker_tells_what_it_was_told_last(tmp_path: Path) -> None:
    async with local_service(tmp_path, spares=1) as service:
        detector = await service.backend.create_detector("one")
        route = await service.scheduler.route(detector, 0)
        worker = service.actors.with_detector(detector)
        assert worker is not None
        for wanted in (True, False):
            worker.make_room(route.epoch, wanted=wanted)
            assert await worker.held() == [Held(detector, route.epoch, room_wanted=wanted)]


async def test_an_activation_that_is_commanded_twice_is_made_once(tmp_path: Path) -> None:
    async with local_service(tmp_path, spares=1) as service:
        detector = await service.backend.create_detector("one")
        await until(lambda: service.actors.started)
        worker = service.actors.started[0]
        epoch = await service.scheduler.catalogue.lease(detector)
        assert epoch is not None
        together = [worker.activate(detector, epoch) for _ in range(2)]
        activated = [*await asyncio.gather(*together), await worker.activate(detector, epoch)]
        assert activated == 3 * activated[:1]
        assert [what for what, _ in worker.calls].count("activate") == 1


async def test_activations_that_come_and_go_are_not_mended(tmp_path: Path) -> None:
    """Each look finds some of them under way."""
    async with local_service(tmp_path, spares=1, max_resident=1, turn_s=0.0) as service:
        detectors = [await service.backend.create_detector(name) for name in ("one", "two")]
        until_s = asyncio.get_running_loop().time() + 3
        while asyncio.get_running_loop().time() < until_s:
            for detector in detectors:
                assert isinstance(await service.backend.call(detector, EVENT), Done)
            await asyncio.sleep(0.05)
        assert service.scheduler.counts[DETECTORS_LOST] == 0
        assert not any(worker.dead for worker in service.actors.started)
