"""The end of a backend: what is saved, what is refused, and that nothing is left behind."""

import asyncio
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from tests.faulty_files import FaultyFiles
from tests.local_runtime.owners import event
from tests.local_runtime.service import local_backend, local_service, until
from tests.unit.runtime.backend.requests import fired, refused

pytestmark = pytest.mark.skipping_clock


async def test_one_that_cannot_be_saved_does_not_keep_its_place_from_others_that_can(tmp_path):
    class OneFolderFails(FaultyFiles):
        stuck = ""

        def create(self, path: Any) -> Any:
            if path.parent.name == self.stuck and "snapshot" in path.name:
                raise OSError("no room")
            return super().create(path)

    files = OneFolderFails()
    settings = {"max_resident": 2, "turn_s": 0.0, "retry_s": 60, "journal_sync": "off"}
    async with local_service(tmp_path, files=files, **settings) as service:
        backend = service.backend
        stuck, sound, third = [await backend.create_detector("") for _ in range(3)]
        files.stuck = stuck
        await backend.call(stuck, event(1))
        await backend.call(sound, event(1))
        await asyncio.wait_for(backend.call(third, event(1)), 5)
        assert service.actors.with_detector(stuck) is not None
        files.stuck = ""


async def test_a_backend_that_is_shut_down_ends_everything_it_started(tmp_path):
    async with local_service(tmp_path) as service:
        detector_id = await service.backend.create_detector("one")
        await service.backend.call(detector_id, event(1))
    assert all(actor.dead for actor in service.actors.started)
    assert service.directories.ended
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.sleep(0)
    assert not {task for task in others if not task.done()}


async def test_what_is_under_way_is_answered_before_channels_shut_down(tmp_path):
    async with local_service(tmp_path, shutdown_s=5) as service:
        detector_id = await service.backend.create_detector("one")
        await service.backend.call(detector_id, event(1))
        actor = service.actors.with_detector(detector_id)

        async def slow(_: str) -> None:
            await asyncio.sleep(1)

        actor.before = slow
        under_way = asyncio.create_task(service.backend.call(detector_id, event(2)))
        await until(lambda: actor.in_flight == 1)
        await service.backend.channels.shut_down()
        assert under_way.done()


async def test_at_the_end_of_the_time_what_waits_for_a_process_is_refused_and_what_comes_then(tmp_path):
    async with local_service(tmp_path, shutdown_s=0.1) as service:
        backend = service.backend
        detector_id = await backend.create_detector("one")
        service.actors.before = _hang
        for actor in service.actors.started:
            actor.before = _hang
        waiting = [asyncio.create_task(refused(backend.call(detector_id, event(1)))) for _ in range(3)]
        await until(lambda: ("activate", 0) in [call for one in service.actors.started for call in one.calls])
        backend.refuse_all()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [1503] * 3
        assert await refused(backend.call(detector_id, event(1))) == 1503
        assert await refused(backend.create_detector("two")) == 1503
        assert await refused(backend.status()) == 1503


async def test_at_the_end_of_the_time_nobody_waits_for_the_directory(tmp_path):
    async with local_service(tmp_path) as service:
        backend = service.backend
        service.directories.before = _hang
        creating = asyncio.create_task(refused(backend.create_detector("one")))
        asking = asyncio.create_task(refused(backend.tokens()))
        await asyncio.sleep(0.05)
        assert not creating.done()
        assert not asking.done()
        backend.refuse_all()
        # The first attempt had no answer.
        assert await asyncio.wait_for(creating, 5) == 1502
        assert await asyncio.wait_for(asking, 5) == 1503


async def test_at_the_end_of_the_time_what_is_under_way_is_not_known_and_the_detector_is_saved(tmp_path):
    async with local_service(tmp_path) as service:
        backend = service.backend
        detector_id = await backend.create_detector("one")
        await backend.call(detector_id, ops.add_rule("seen", "once a == 1"))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        go_on = asyncio.Event()

        async def late(what: str) -> None:
            if what == "handle":
                await go_on.wait()

        actor.before = late
        under_way = asyncio.create_task(refused(backend.call(detector_id, event(1, a=1))))
        await until(lambda: actor.in_flight == 1)
        backend.refuse_all()
        assert await asyncio.wait_for(under_way, 5) == 1502
        go_on.set()
        assert await backend.close() == []
    async with local_backend(tmp_path) as backend:
        assert await fired(backend, detector_id, 2) == ["seen"], "it had begun, and was carried out"


async def _hang(_: str) -> None:
    await asyncio.Event().wait()
