"""A detector queue: one batch in flight, bounds, and deadlines."""

import asyncio
import itertools
import json

import pytest

from engine.language.limits import Limits
from engine.runtime.contract.requests import operations as ops
from tests.local_runtime.owners import event
from tests.unit.runtime.activation.queue.scene import clock_of, outcomes

pytestmark = pytest.mark.skipping_clock


async def test_what_waits_while_a_batch_is_in_flight_is_the_next_batch(scene):
    async with scene() as s:
        s.gate.held = {"handle"}
        first = s.asks(1)
        await s.held()
        rest = s.asks(*range(2, 50))
        await asyncio.sleep(0)
        s.gate.open()
        assert await outcomes(first + rest) == ["done"] * 49
        assert s.batches == [1, 48]
        assert s.actor.in_flight_most == 1


async def test_requests_are_evaluated_in_the_order_in_which_they_came(scene):
    async with scene(batch_operations_max=7) as s:
        await s.backend.call(s.detector_id, ops.add_rule("r", "once a == 1"))
        tasks = [s.ask(event(number, a=int(number == 60))) for number in range(100)]
        results = await asyncio.gather(*tasks)
        assert [len(json.loads(one.result)["actions"]) for one in results] == [0] * 60 + [1] * 40


async def test_a_deadline_that_passes_during_activation_is_1501_and_nothing_is_evaluated(scene):
    async with scene(deadline_s=0.3) as s:
        s.gate.held = {"activate"}
        assert await outcomes(s.asks(1, 2, 3)) == [1501] * 3
        s.gate.open()
        assert await outcomes(s.asks(7)) == ["done"]
        assert s.batches == [1]


async def test_a_deadline_that_passes_in_flight_is_1502_and_what_waited_behind_it_is_1501(scene):
    async with scene(deadline_s=0.3) as s:
        s.gate.held = {"handle"}
        first = s.asks(1)
        await s.held()
        behind = s.asks(888)
        assert await outcomes(first) == [1502]
        assert await outcomes(behind) == [1501]
        s.gate.open()
        assert await outcomes(s.asks(5)) == ["done"]
        # The first was carried out all the same, and the one behind it never was.
        assert s.batches == [1, 1]
        assert await clock_of(s) == 5


async def test_a_snapshot_that_takes_long_keeps_a_detector_active_and_no_request_from_its_answer(scene):
    async with scene(journal_sync="off", snapshot_interval_s=0.01, hung_s=0.1, passivate_after_s=0.02) as s:
        s.gate.held = {"finish_saving"}
        # Where both are due at once, the detector rests instead. So it is asked until it is saved.
        times = itertools.count(1)
        while not s.gate.held_up:
            assert await outcomes(s.asks(next(times))) == ["done"]
        actor = s.actor
        assert await outcomes(s.asks(next(times))) == ["done"]
        await asyncio.sleep(0.3)
        assert await outcomes(s.asks(next(times))) == ["done"]
        assert s.actor is actor
        s.gate.open()


async def test_what_a_reply_has_no_room_for_is_sent_again_and_answered_once(scene):
    async with scene(limits=Limits(answer_bytes_max=800)) as s:
        for number in range(4):
            await s.backend.call(s.detector_id, ops.add_rule(f"rule {number}", "once a == 1"))
        sent = len(s.batches)
        s.gate.held = {"handle"}
        first = s.ask(event(0, a=1))
        await s.held()
        tasks = [s.ask(event(number)) for number in range(1, 21)]
        await asyncio.sleep(0)
        s.gate.open()
        assert await outcomes([first, *tasks]) == ["done"] * 21
        assert all(json.loads(task.result().result)["actions"] for task in tasks)
        # Two of them fill a reply.
        assert s.batches[sent:] == [1, *range(20, 0, -2)]
        assert s.actor.actor._active.detector.events_seen == 21
