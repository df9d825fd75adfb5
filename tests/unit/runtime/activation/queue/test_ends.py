"""A queue whose detector is deleted or closed: an answer to every request that waits."""

import asyncio

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from tests.local_runtime.owners import event
from tests.local_runtime.service import local_service, until
from tests.unit.runtime.activation.queue.scene import outcomes

pytestmark = pytest.mark.skipping_clock


async def test_deletion_answers_those_who_wait_with_1200_and_those_in_flight_with_their_results(
    scene, tmp_path
):
    async with scene() as s:
        assert await outcomes(s.asks(1)) == ["done"]
        s.gate.held = {"handle"}
        first = s.asks(2)
        await s.held()
        behind = s.asks(3, 4)
        await asyncio.sleep(0)
        deletion = asyncio.create_task(s.backend.delete_detector(s.detector_id))
        assert await outcomes(behind) == [1200, 1200]
        assert await outcomes(s.asks(5)) == [1200]
        s.gate.open()
        assert await outcomes(first) == ["done"]
        await deletion
        await until(lambda: not (tmp_path / "detectors" / s.detector_id).exists())
        assert await outcomes(s.asks(6)) == [1200]


async def test_a_worker_that_a_deleted_detector_has_made_large_is_replaced(tmp_path):
    async with local_service(tmp_path, actor_bytes_max=1, spares=0) as service:
        detector_id = await service.backend.create_detector("large")
        await service.backend.call(detector_id, event(1))
        await service.backend.delete_detector(detector_id)
        await until(lambda: service.actors.started[0].dead)


async def test_deletion_during_activation_answers_1200_at_once(scene):
    async with scene() as s:
        s.gate.held = {"activate"}
        tasks = s.asks(1, 2)
        await s.held()
        await s.backend.delete_detector(s.detector_id)
        assert await outcomes(tasks) == [1200, 1200]
        s.gate.open()
        assert s.service.scheduler.active_detectors == 0


async def test_closing_answers_what_waits_and_then_refuses(scene):
    async with scene() as s:
        s.gate.held = {"handle"}
        tasks = s.asks(1)
        await s.held()
        tasks += s.asks(2, 3)
        await asyncio.sleep(0)
        closing = asyncio.create_task(s.backend.close())
        await asyncio.sleep(0)
        assert await outcomes(s.asks(4)) == [1503]
        s.gate.open()
        assert await outcomes(tasks) == ["done"] * 3
        assert await closing == []


async def test_closing_does_not_wait_for_ever(scene):
    async with scene(shutdown_s=0.02, hung_s=0.1) as s:
        s.gate.held = {"handle"}
        tasks = s.asks(1)
        await s.held()
        tasks += s.asks(2)
        await asyncio.sleep(0)
        assert await asyncio.wait_for(s.backend.close(), 5) == [], "nothing that was answered is lost"
        assert await outcomes(tasks) == [1502, 1503]


async def test_closing_says_where_what_was_answered_may_be_lost(scene):
    # The snapshot at shutdown may take a while on a busy machine. What hangs after it ends it early.
    async with scene(shutdown_s=30, hung_s=0.3, journal_sync="off") as s:
        assert await outcomes(s.asks(1)) == ["done"]
        s.gate.held = {"passivate"}
        (unsaved,) = await asyncio.wait_for(s.backend.close(), 60)
        assert s.detector_id in unsaved
        assert "not answered" in unsaved


async def test_closing_during_activation_answers_1503(scene):
    async with scene(shutdown_s=0.02) as s:
        s.gate.held = {"activate"}
        tasks = s.asks(1)
        await s.held()
        await asyncio.wait_for(s.backend.close(), 5)
        assert await outcomes(tasks) == [1503]


def keyed(timestamp_ms: float, key: str) -> Operation:
    return ops.evaluate(event(timestamp_ms).payload, key)


@pytest.mark.parametrize(("ending", "code"), [("delete", 1200), ("close", 1502)])
async def test_what_was_to_be_sent_again_is_answered_at_once_if_the_queue_ends(scene, ending, code):
    async with scene(shutdown_s=0.05) as s:
        s.gate.held = {"handle"}
        task = s.ask(keyed(1, "k"))
        await s.held()
        end = s.backend.delete_detector(s.detector_id) if ending == "delete" else s.backend.close()
        ended = asyncio.create_task(end)
        await asyncio.sleep(0.2)
        s.gate.held = {"activate"}
        s.actor.die()
        assert await asyncio.wait_for(outcomes([task]), 5) == [code]
        await asyncio.wait_for(ended, 5)


@pytest.mark.parametrize("sync", ["always", "interval", "off"])
async def test_a_service_that_has_saved_all_does_not_say_that_it_has_not(tmp_path, sync):
    async with local_service(tmp_path, journal_sync=sync) as service:
        detector_id = await service.backend.create_detector("one")
        await service.backend.call(detector_id, event(1))
        assert await service.backend.close() == []
