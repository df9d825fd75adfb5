"""A scheduler that comes after another takes over its workers: what is active stays active."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.measures import ACTIVATIONS
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.scheduler.scheduler import Scheduler
from tests.local_runtime.actors import LocalActors
from tests.local_runtime.catalogues import LocalCatalogues
from tests.local_runtime.service import LocalService, local_service, until
from tests.local_runtime.workers import LocalWorker

pytestmark = pytest.mark.skipping_clock

_LONG_S = 30
"""How long a silent worker says nothing: longer than a start may take. All that runs meanwhile costs work."""


def event(timestamp_ms: float) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": {}, "timestamp_ms": timestamp_ms}}).encode())


def lose_scheduler(service: LocalService) -> None:
    """Act as if its process died: its connections end, and it hears and does nothing any more."""
    service.scheduler._workers.lose = lambda _: None  # type: ignore[method-assign]
    for client in service.connected:
        client.link.abort()
    for worker in service.actors.started:
        worker.client.link.abort()
    for worker in service.scheduler._workers._all:
        for watcher in worker.watchers:
            watcher.cancel()
    service.directories.fail()


@asynccontextmanager
async def succeeded(service: LocalService, lost_on: str = "") -> AsyncIterator[Scheduler]:
    """A second scheduler, after the first one is lost, perhaps with its node."""
    lose_scheduler(service)
    left = [worker for worker in service.actors.started if not worker.dead]
    service.actors = LocalActors(service.settings)
    service.actors.lost_on = lost_on
    service.actors.left = left
    service.directories = LocalCatalogues(service.settings)
    service.begin()
    await service.backend.scheduler.status()
    yield service.scheduler
    assert await service.backend.close() == []


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[LocalService]:
    async with local_service(folder, spares=1) as service:
        yield service


async def active(service: LocalService) -> tuple[str, LocalWorker]:
    """An active detector, and its worker."""
    detector = await service.backend.create_detector("one")
    await service.backend.call(detector, event(1))
    worker = service.actors.with_detector(detector)
    assert worker is not None
    return detector, worker


async def test_what_is_active_stays_active_and_is_not_activated_again(tmp_path):
    async with serving(tmp_path) as service:
        detector, worker = await active(service)
        async with succeeded(service) as scheduler:
            assert scheduler.active_detectors == 1
            assert (await scheduler.route(detector, 0)).worker == worker.name
            assert isinstance(await service.backend.call(detector, event(2)), Done)
            assert scheduler.counts[ACTIVATIONS] == 0
            assert worker.actor._active.detector.events_seen == 2
            # It reports to the successor now.
            worker.make_room((await scheduler.route(detector, 0)).epoch)
            await until(lambda: not scheduler.active_detectors)


async def test_an_activation_that_ends_after_its_scheduler_did_is_adopted(tmp_path):
    async with serving(tmp_path) as service:
        detector = await service.backend.create_detector("one")
        go_on = asyncio.Event()

        async def slowly(what: str) -> None:
            if what == "activate":
                await go_on.wait()

        await until(lambda: service.actors.started)
        (worker,) = service.actors.started
        worker.before = slowly
        asking = asyncio.create_task(service.scheduler.route(detector, 0))
        await until(lambda: ("activate", 0) in worker.calls)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        async with succeeded(service) as scheduler:
            assert (await scheduler.route(detector, 0)).worker == worker.name
            assert go_on.is_set(), "it is adopted once it is active"
            assert scheduler.counts[ACTIVATIONS] == 0
            asking.cancel()
            await asyncio.wait({asking})


async def test_a_detector_that_was_deleted_or_given_to_another_worker_is_dropped(tmp_path):
    async with serving(tmp_path) as service:
        (deleted, _), (moved, former) = [await active(service) for _ in range(2)]
        # Another worker got it while the scheduler took this one for dead.
        epoch = await service.scheduler.catalogue.lease(moved)
        assert epoch is not None
        later = await service.actors.start()
        await later.activate(moved, epoch)
        await service.scheduler.catalogue.delete_detector(deleted)
        async with succeeded(service) as scheduler:
            assert scheduler.active_detectors == 1
            assert (await scheduler.route(moved, 0)).epoch == epoch
            await until(lambda: not former.hosts)
            await until(lambda: not service.actors.with_detector(deleted))
            assert later.hosts == {moved}


async def test_all_detectors_of_a_shared_worker_are_adopted_and_it_takes_more(tmp_path):
    async with local_service(tmp_path, spares=0, detectors_per_worker=3) as service:
        (*kept, deleted), (worker, *_) = zip(*[await active(service) for _ in range(3)], strict=True)
        await service.scheduler.catalogue.delete_detector(deleted)
        async with succeeded(service) as scheduler:
            assert scheduler.active_detectors == 2
            await until(lambda: worker.hosts == set(kept))
            for detector in kept:
                assert (await scheduler.route(detector, 0)).worker == worker.name
            more = await service.backend.create_detector("more")
            assert (await scheduler.route(more, 0)).worker == worker.name
            assert not worker.dead


async def test_a_shared_worker_that_is_full_is_adopted_and_takes_no_more(tmp_path):
    async with local_service(tmp_path, spares=0, detectors_per_worker=2) as service:
        _, (worker, *_) = zip(*[await active(service) for _ in range(2)], strict=True)
        async with succeeded(service) as scheduler:
            more = await service.backend.create_detector("more")
            await scheduler.route(more, 0)
            assert len(worker.hosts) == 2
            assert more not in worker.hosts


async def test_a_worker_that_does_not_answer_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.runtime.scheduler.adoption._ANSWER_S", 0.05)
    async with serving(tmp_path) as service:
        detector, worker = await active(service)

        async def never() -> None:
            await asyncio.Event().wait()

        worker.held = never  # type: ignore[method-assign]
        async with succeeded(service) as scheduler:
            assert worker.dead
            assert not scheduler.active_detectors
            assert isinstance(await service.backend.call(detector, event(2)), Done)


async def test_a_detector_that_was_adopted_counts_against_the_slots(tmp_path):
    async with local_service(tmp_path, spares=1, max_resident=1, turn_s=0.0) as service:
        await active(service)
        two = await service.backend.create_detector("two")
        async with succeeded(service) as scheduler:
            await service.backend.call(two, event(1))
            assert scheduler.active_detectors == 1


async def test_a_worker_that_nobody_adopts_saves_and_ends(tmp_path):
    async with local_service(tmp_path, spares=1, abandoned_s=0.1) as service:
        _, worker = await active(service)
        ended: list[int] = []
        worker.service._abandoned = lambda: ended.append(1)
        await asyncio.sleep(0.4)
        assert not ended, "it has a scheduler"
        lose_scheduler(service)
        for server in list(worker.service.servers):
            server.close()
        await until(lambda: ended)
        assert not worker.service.queues
        service.directories.refuse = False


async def test_the_start_does_not_wait_for_a_worker_that_answers_late_but_adopts_it_then(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("engine.runtime.scheduler.adoption._FIRST_S", 0.05)
    async with serving(tmp_path) as service:
        workers = dict([await active(service) for _ in range(2)])
        late, moved = workers
        answer = asyncio.Event()
        found = LocalActors._found

        async def slowly(actors: LocalActors, worker: LocalWorker) -> LocalWorker:
            if worker in workers.values():
                await answer.wait()
            return await found(actors, worker)

        monkeypatch.setattr(LocalActors, "_found", slowly)
        async with succeeded(service) as scheduler:
            assert not scheduler.active_detectors
            # Whoever asks for one meanwhile gets it elsewhere.
            assert (await scheduler.route(moved, 0)).worker != workers[moved].name
            answer.set()
            await until(lambda: not workers[moved].hosts)
            assert not workers[late].dead
            assert (await scheduler.route(late, 0)).worker == workers[late].name
            assert scheduler.counts[ACTIVATIONS] == 1
            assert isinstance(await service.backend.call(late, event(2)), Done)


async def test_workers_on_the_node_that_was_lost_with_the_scheduler_are_hardly_waited_for(
    tmp_path, monkeypatch
):
    async with serving(tmp_path) as service:
        detector, _ = await active(service)
        found = LocalActors._found

        async def silent(actors: LocalActors, worker: LocalWorker) -> LocalWorker:
            if worker.node == "n":
                await asyncio.sleep(_LONG_S)
            return await found(actors, worker)

        monkeypatch.setattr(LocalActors, "_found", silent)
        began_s = asyncio.get_running_loop().time()
        async with succeeded(service, lost_on="n") as scheduler:
            assert asyncio.get_running_loop().time() - began_s < 0.5
            # Ray still believes in the node, but nothing is started there.
            route = await scheduler.route(detector, 0)
            assert route.address.node == "m"
            assert scheduler.counts[ACTIVATIONS] == 1


@pytest.mark.parametrize("lost_on", ["", "m"])
async def test_workers_that_were_being_started_are_hardly_waited_for(tmp_path, monkeypatch, lost_on):
    async with serving(tmp_path) as service:
        await until(lambda: service.actors.started)

        async def silent(actors: LocalActors, worker: LocalWorker) -> LocalWorker:
            await asyncio.sleep(_LONG_S)
            return worker

        monkeypatch.setattr(LocalActors, "_found", silent)
        for worker in service.actors.started:
            worker.node = ""
        began_s = asyncio.get_running_loop().time()
        async with succeeded(service, lost_on) as scheduler:
            assert asyncio.get_running_loop().time() - began_s < 0.5
            assert not scheduler._nodes.avoided


async def test_a_node_whose_workers_answer_is_not_given_up_because_the_scheduler_was_lost_there(tmp_path):
    async with serving(tmp_path) as service:
        detector, _ = await active(service)
        async with succeeded(service, lost_on="n") as scheduler:
            assert scheduler.active_detectors == 1
            assert not scheduler._nodes.avoided
            assert (await scheduler.route(detector, 0)).address.node == "n"


async def test_what_is_adopted_late_is_saved_at_the_end_too(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.runtime.scheduler.adoption._FIRST_S", 0.05)
    async with serving(tmp_path) as service:
        _, worker = await active(service)
        found = LocalActors._found

        async def slowly(actors: LocalActors, one: LocalWorker) -> LocalWorker:
            await asyncio.sleep(0.3)
            return await found(actors, one)

        monkeypatch.setattr(LocalActors, "_found", slowly)
        async with succeeded(service) as scheduler:
            assert not scheduler.active_detectors
        assert ("passivate", 0) in worker.calls
