"""Which worker has which detector: nothing reaches another one than it is meant for."""

import asyncio
import json
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.activation import detector_service, schedule
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import (
    LEFT,
    REPORT,
    Activated,
    Ended,
    Reply,
    Report,
    decode_report,
)
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.transport.link import Answered, Moved, Note, Response
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.server_connection import Outcome, Submission
from tests.local_runtime.actors import LocalActors
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.service import local_service, until
from tests.local_runtime.workers import LocalWorker

pytestmark = pytest.mark.skipping_clock

ONE, OTHER = "1" * 32, "2" * 32


def event(timestamp_ms: float, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


@pytest.fixture
async def worker(tmp_path):
    for detector_id in (ONE, OTHER):
        newborn(tmp_path, detector_id)
    worker = await LocalActors(RuntimeSettings(data=tmp_path)).start()
    yield worker
    for queue in list(worker.service.queues.values()):
        await queue.close()


async def sent(client: LinkClient, epoch: int, *operations: Operation) -> Response | None:
    answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
    client.send(answer.set_result, epoch, list(operations))
    return await asyncio.wait_for(answer, 5)


async def released(worker: LocalWorker, epoch: int) -> None:
    """Have the detector make room, and wait until it has."""
    reports: list[Report] = []
    worker.reported = reports.append
    worker.make_room(epoch)
    await until(lambda: any(report.ended is not None for report in reports))


async def test_what_is_meant_for_an_earlier_activation_reaches_no_later_one(worker):
    client = worker.connected()
    assert isinstance(await sent(client, 1, event(1)), Moved), "there is none yet"
    await worker.activate(ONE, 1)
    assert isinstance(await sent(client, 1, event(1)), Answered)
    await released(worker, 1)
    assert isinstance(await sent(client, 1, event(2)), Moved)
    await worker.activate(OTHER, 2)
    assert isinstance(await sent(client, 1, event(3)), Moved)
    assert worker.actor._active.detector.events_seen == 0
    assert isinstance(await sent(client, 2, event(4)), Answered)
    assert worker.actor._active.detector.events_seen == 1


async def test_whatever_waits_for_a_detector_that_is_passivated_is_told_to_go_elsewhere(worker):
    await worker.activate(ONE, 1)
    goes_on = asyncio.Event()

    async def slowly(call: str) -> None:
        if call == "passivate":
            await goes_on.wait()

    worker.before = slowly
    worker.make_room(1)
    await until(lambda: ("passivate", 0) in worker.calls)
    waiting = asyncio.ensure_future(sent(worker.connected(), 1, event(1)))
    forked = asyncio.ensure_future(worker.service.queues[1].fork("3" * 32))
    await asyncio.sleep(0.1)
    goes_on.set()
    async with asyncio.timeout(5):
        assert isinstance(await waiting, Moved)
        assert not await forked


async def test_all_front_ends_are_told_that_an_activation_is_over(worker):
    told: list[Note] = []
    clients = [worker.connected() for _ in range(3)]
    for client in clients:
        client.noted = told.append
    await worker.activate(ONE, 7)
    await sent(clients[0], 7, event(1))
    await released(worker, 7)
    await until(lambda: len(told) == 3)
    assert set(map(repr, told)) == {repr(Note(LEFT, b"7"))}


async def test_the_supervisor_is_told_by_a_report_alone_that_an_activation_is_over(worker):
    told: list[str] = []
    worker.client.noted = lambda note: told.append(note.name)
    await worker.activate(ONE, 7, True)
    await sent(worker.connected(), 7, event(1))
    await until(lambda: told and not worker.service.queues)
    assert told == [REPORT]


@pytest.mark.parametrize(("interval_s", "told"), [(1e9, []), (0.0, [True])])
async def test_an_activation_counts_as_use(worker, monkeypatch, interval_s, told):
    """So its first batch is not reported, unless it comes later."""
    monkeypatch.setattr(schedule, "_USED_TOLD_S", interval_s)
    reports: list[Report] = []
    worker.reported = reports.append
    await worker.activate(ONE, 1)
    await sent(worker.connected(), 1, event(1))
    await asyncio.sleep(2 * detector_service._USED_TOLD_S)
    assert [report.used for report in reports] == told


async def test_the_supervisor_is_told_at_once_of_several_detectors_that_are_in_use(worker, monkeypatch):
    monkeypatch.setattr(schedule, "_USED_TOLD_S", 0.0)
    link = worker.client.link
    frames: list[list[int]] = []

    def take(notes: list[Note]) -> None:
        frames.append([decode_report(note.body).epoch for note in notes])

    for epoch, detector_id in ((1, ONE), (2, OTHER)):
        await worker.activate(detector_id, epoch)
    monkeypatch.setattr(link, "take", take)
    for number in range(2):
        for epoch in (1, 2):
            await sent(worker.connected(), epoch, event(number))
    await until(lambda: frames)
    assert frames == [[1, 2]]


async def test_a_worker_has_more_to_do_while_more_than_one_batch_is_unanswered(worker, monkeypatch):
    seen: list[bool] = []
    handle = OperationExecutor.handle

    def noting(actor: OperationExecutor, *given: Any) -> Reply:
        seen.append(worker.service.more_waits())
        return handle(actor, *given)

    monkeypatch.setattr(OperationExecutor, "handle", noting)
    for epoch, detector_id in ((1, ONE), (2, OTHER)):
        await worker.activate(detector_id, epoch)
    client = worker.connected()
    await sent(client, 1, event(1))
    # The first one goes at once, the other two in one frame.
    await asyncio.gather(*(sent(client, epoch, event(2)) for epoch in (1, 2, 1)))
    assert seen == [False, False, True, False]


async def test_no_report_follows_that_a_detector_was_in_use_before_it_left(worker, monkeypatch):
    monkeypatch.setattr(schedule, "_USED_TOLD_S", 0.0)
    await worker.activate(ONE, 1)
    await sent(worker.connected(), 1, event(1))
    reports: list[Report] = []
    worker.reported = reports.append
    worker.make_room(1)
    await until(lambda: reports)
    await asyncio.sleep(2 * detector_service._USED_TOLD_S)
    assert [report.ended is not None for report in reports] == [True]


async def test_an_activation_is_told_with_its_request_that_another_one_waits(tmp_path, monkeypatch):
    activate, told = LocalWorker.activate, []

    async def noted(self: LocalWorker, detector: str, epoch: int, wanted: bool) -> Activated:
        told.append((detector, wanted))
        return await activate(self, detector, epoch, wanted)

    monkeypatch.setattr(LocalWorker, "activate", noted)
    monkeypatch.setattr(LocalWorker, "make_room", lambda *_, **__: told.append("alone"))
    async with local_service(tmp_path, max_resident=1) as service:
        ids = [await service.backend.create_detector(name) for name in "ab"]

        async def until_both_wait(call: str) -> None:
            if call == "lease":
                await asyncio.sleep(0.1)

        service.directories.before = until_both_wait
        await asyncio.gather(*(service.backend.call(detector_id, event(1)) for detector_id in ids))
        # Its end may activate one of them again.
        assert told == [(ids[0], True), (ids[1], False)]


async def test_an_activation_that_is_wanted_waits_for_its_requests_before_it_gives_way(worker):
    await worker.activate(ONE, 1)
    worker.make_room(1)
    await asyncio.sleep(0.05)
    assert isinstance(await sent(worker.connected(), 1, event(1)), Answered)


async def test_a_report_that_overtakes_the_end_of_the_activation_is_not_lost(tmp_path):
    """The detector is not believed to be where it is not."""
    async with local_service(tmp_path) as service:
        detector_id = await service.backend.create_detector("one")
        await until(lambda: service.actors.started)
        await service.backend.call(detector_id, event(1))
        first = service.actors.with_detector(detector_id)
        assert first is not None
        activate = LocalWorker.activate
        ended: list[int] = []

        async def ends_at_once(self: LocalWorker, detector: str, epoch: int, wanted: bool) -> Activated:
            activated = await activate(self, detector, epoch, wanted)
            if not ended:
                ended.append(epoch)
                self.actor.discard()
                self.service.queues.clear()
                self.reported(Report(epoch, ended=Ended("the test")))
            return activated

        for actor in service.actors.started:
            actor.activate = ends_at_once.__get__(actor)
        first.die()
        await until(lambda: not service.scheduler.active_detectors)
        answer = await asyncio.wait_for(service.backend.call(detector_id, event(2)), 10)
        assert isinstance(answer, Done)
        assert ended


async def test_what_does_not_fit_with_other_batches_is_executed_after_them(tmp_path):
    newborn(tmp_path, ONE)
    worker = await LocalActors(RuntimeSettings(data=tmp_path, batch_operations_max=3)).start()
    await worker.activate(ONE, 1)
    # After the first one, the task has planned a snapshot, and sleeps.
    await sent(worker.connected(), 1, event(1))
    await asyncio.sleep(0.1)
    answers = await asyncio.gather(*(sent(worker.connected(), 1, event(1), event(2)) for _ in range(3)))
    assert [len(answer.answers) for answer in answers if isinstance(answer, Answered)] == [2, 2, 2]
    assert [size for what, size in worker.calls if what == "handle"] == [1, 2, 2, 2]
    await worker.service.queues[1].close()


async def test_a_batch_waits_for_a_call_that_begins_in_the_same_turn(worker):
    await worker.activate(ONE, 1)
    await asyncio.sleep(0.1)
    queue, outcomes = worker.service.queues[1], list[Outcome]()
    forked = asyncio.ensure_future(queue.fork("3" * 32))
    asyncio.get_running_loop().call_soon(queue.submit, Submission([event(1)], outcomes.append, 0.0))
    assert await forked
    await until(lambda: outcomes)
    assert isinstance(outcomes[0], Reply)
