"""Callers that never pause keep detectors busy in all slots: any other detector is answered soon too."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from engine.evaluation.wire.events import Done
from engine.evaluation.wire.inspecting.states import StateAsked
from engine.runtime.contract.requests import operations as ops
from tests.local_runtime.connections import no_fault
from tests.local_runtime.service import LocalService, local_service, until

pytestmark = pytest.mark.skipping_clock

SLOTS = 8


def each_takes(**seconds: float) -> Callable[[str], Awaitable[None]]:
    """Have calls to the detectors of a worker take that long, by their names."""

    async def wait(what: str) -> None:
        await asyncio.sleep(seconds.get(what, 0))

    return wait


SHORT = each_takes(handle=0.05)


class Callers:
    """Each sends a detector one event after another, and never pauses."""

    def __init__(self, service: LocalService) -> None:
        self.service = service
        self.sent: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, detectors: int) -> None:
        if self.service.actors.before is no_fault:
            self.service.actors.before = SHORT
        for number in range(detectors):
            detector = await self.service.backend.create_detector(f"busy {number}")
            rule = ops.add_rule("each second", "count(a == 1) >= 1")
            assert isinstance(await self.service.backend.call(detector, rule), Done)
            self.sent[detector] = 0
            self._tasks += [asyncio.create_task(self._send(detector)) for _ in range(2)]

    async def _send(self, detector: str) -> None:
        while True:
            event = {"fields": {"a": 1}, "timestamp_ms": 1}
            answer = await self.service.backend.call(
                detector, ops.evaluate(json.dumps({"event": event}).encode())
            )
            assert isinstance(answer, Done), answer
            assert len(json.loads(answer.result)["actions"]) == 1
            self.sent[detector] += 1

    async def end(self) -> None:
        """Stop, and check that each event was answered and evaluated once."""
        for task in self._tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.wait(self._tasks)
        for detector, sent in self.sent.items():
            assert sent
            state = await self.service.backend.call(detector, ops.state(StateAsked()))
            # Those in flight at the end may have been evaluated.
            assert sent <= json.loads(state.result)["events"] <= sent + 2


async def answered_in_s(service: LocalService) -> float:
    """How long an event for a detector that nobody else asks takes."""
    loop = asyncio.get_running_loop()
    other = await service.backend.create_detector("other")
    began_s = loop.time()
    body = b'{"event": {"fields": {}, "timestamp_ms": 1}}'
    assert isinstance(await service.backend.call(other, ops.evaluate(body)), Done)
    return loop.time() - began_s


async def test_more_busy_detectors_than_slots_take_turns(tmp_path):
    async with local_service(tmp_path, max_resident=2, spares=0) as service:
        callers = Callers(service)
        await callers.begin(5)
        before = dict(callers.sent)
        await asyncio.sleep(3)
        assert all(callers.sent[detector] > before[detector] for detector in before)
        assert await answered_in_s(service) < 1
        await callers.end()


async def test_another_detector_does_not_wait_for_the_longest_of_the_batches_in_flight(tmp_path):
    """The one that is active longest has just begun a batch; all others end theirs before it."""
    async with local_service(tmp_path, max_resident=SLOTS, spares=0) as service:
        callers = Callers(service)
        await callers.begin(SLOTS)
        for worker in reversed(service.actors.started):
            worker.before = each_takes(handle=1.0 * SLOTS)
            await asyncio.sleep(1)
        other = await service.backend.create_detector("other")
        began_s = asyncio.get_running_loop().time()
        # Its own event would take as long in such a worker.
        await service.scheduler.route(other, 0)
        assert asyncio.get_running_loop().time() - began_s < 3
        for worker in service.actors.started:
            worker.before = SHORT
        await callers.end()


async def test_another_detector_does_not_wait_for_processes_that_do_not_start(tmp_path):
    """On a busy machine a process takes long to start, and each activation takes longer than it should."""
    async with local_service(tmp_path, max_resident=SLOTS, spares=1) as service:
        service.actors.before = each_takes(handle=0.02, activate=0.3)
        callers = Callers(service)
        await until(lambda: service.actors.started)
        for worker in service.actors.started:
            worker.before = service.actors.before
        service.actors.room.clear()
        await callers.begin(len(service.actors.started))
        await asyncio.sleep(1)
        assert await answered_in_s(service) < 1.5
        service.actors.room.set()
        await callers.end()


async def test_a_small_request_does_not_wait_for_large_batches_while_processes_start(tmp_path):
    """Few slots are open then, and a batch of those who wait for one may take longer than a second."""
    async with local_service(tmp_path, max_resident=SLOTS, spares=1) as service:
        backend, actors = service.backend, service.actors
        event = {"fields": {"text": "x" * 4_000}, "timestamp_ms": 1}
        batch = ops.evaluate_batch(json.dumps({"events": [event] * 20}).encode())

        async def send_on(detector: str) -> None:
            while True:
                assert isinstance(await backend.call(detector, batch), Done)

        actors.before = each_takes(handle=2.0)
        large = [await backend.create_detector(f"large {number}") for number in range(5)]
        other = await backend.create_detector("other")
        tasks = [asyncio.create_task(send_on(large[0]))]
        await until(lambda: len(actors.started) == 2)
        for worker in actors.started:
            worker.before = actors.before
        actors.room.clear()
        tasks += [asyncio.create_task(send_on(one)) for one in large[1:]]
        await asyncio.sleep(1)
        for _ in range(5):
            began_s = asyncio.get_running_loop().time()
            route = await service.scheduler.route(other, 0)
            assert asyncio.get_running_loop().time() - began_s < 1
            (worker,) = [one for one in actors.started if one.name == route.worker]
            worker.make_room(route.epoch)
            await asyncio.sleep(2)
        # That a process is spared for small requests does not keep others from being started.
        actors.room.set()
        await until(lambda: len(actors.started) > len(large))
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()


async def test_a_detector_counts_as_large_until_it_leaves(tmp_path):
    async with local_service(tmp_path) as service:
        detector = await service.backend.create_detector("large at first")
        route = await service.scheduler.route(detector, 0, large=True)
        (placed,) = service.scheduler._placed.values()
        assert placed.large
        small = asyncio.create_task(service.scheduler.route(detector, route.epoch))
        await asyncio.sleep(0.01)
        worker = service.actors.with_detector(detector)
        assert worker is not None
        worker.make_room(route.epoch)
        assert (await small).epoch > route.epoch
        assert service.scheduler._placed[detector] is placed
        assert not placed.large
