"""Answers that wait in the worker until the front end has room for them."""

import asyncio
import json
from pathlib import Path

from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from tests.local_runtime.service import local_service, until

EVENTS = 400
NAME = "n" * 250


async def test_an_answer_that_waits_comes_once_though_its_detector_leaves_meanwhile(tmp_path: Path) -> None:
    async with local_service(tmp_path, turn_s=0.0) as service:
        backend = service.backend
        detector_id = await backend.create_detector("d")
        for _ in range(20):
            await backend.call(detector_id, ops.add_rule(NAME, "a == 1"))
        events = [{"fields": {"a": 1}, "timestamp_ms": 0}] * EVENTS
        batch = asyncio.create_task(
            backend.call(detector_id, ops.evaluate_batch(json.dumps({"events": events}).encode()))
        )
        await asyncio.sleep(0)
        # From now on there is no room for its answer.
        backend.memory.hold_answer(backend.memory.bytes_max)
        await until(lambda: backend.memory._waiting)
        worker = service.actors.with_detector(detector_id)
        assert worker is not None
        (queue,) = worker.service.queues.values()
        queue.make_room()
        await until(lambda: not worker.service.queues)
        await asyncio.sleep(0.01)
        assert not batch.done()
        backend.memory.hold_answer(-backend.memory.bytes_max)
        backend.memory.change_requests(0)
        answer = await batch
        assert isinstance(answer, Done)
        assert answer.result.count(b'{"actions":[{') == EVENTS
        state = await backend.call(detector_id, ops.state(StateAsked()))
        assert isinstance(state, Done)
        assert json.loads(state.result)["events"] == EVENTS
        assert backend.memory.held == 0
