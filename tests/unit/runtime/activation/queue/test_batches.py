"""A detector queue: one batch in flight, bounds, and deadlines."""

import asyncio
import itertools
import json

import pytest

from engine.language.limits import Limits
from engine.runtime.contract.requests import operations as ops
from tests.unit.runtime.activation.queue.scene import clock_of, event, outcomes

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


async def test_never_more_than_one_call_is_in_flight(scene):
    async with scene(snapshot_interval_s=0.001, passivate_after_s=0.002) as s:

        async def caller(number: int) -> None:
            for step in range(30):
                await s.backend.call(s.detector_id, event(number + step))
                if step % 10 == 9:
                    await asyncio.sleep(0.003)

        await asyncio.gather(*(caller(number) for number in range(20)))
        assert {one.in_flight_most for one in s.service.actors.started} <= {0, 1}
        calls = {call for one in s.service.actors.started for call, _ in one.calls}
        assert {"begin_saving", "finish_saving", "passivate", "activate", "handle"} <= calls


async def test_batches_are_bounded(scene):
    async with scene(batch_operations_max=10) as s:
        s.gate.held = {"activate"}
        tasks = s.asks(*range(25))
        await s.held()
        s.gate.open()
        assert await outcomes(tasks) == ["done"] * 25
        assert s.batches == [10, 10, 5]


async def test_requests_are_evaluated_in_the_order_in_which_they_came(scene):
    async with scene(batch_operations_max=7) as s:
        await s.backend.call(s.detector_id, ops.add_rule("r", "once a == 1"))
        tasks = [s.ask(event(number, a=int(number == 60))) for number in range(100)]
        results = await asyncio.gather(*tasks)
        assert [len(json.loads(one.result)["actions"]) for one in results] == [0] * 60 + [1] * 40


async def test_one_bad_request_stalls_no_other(scene):
    async with scene() as s:
        tasks = [*s.asks(1), s.ask(ops.evaluate(b"\xff")), *s.asks(2), s.ask(ops.rule("none")), *s.asks(3)]
        assert await outcomes(tasks) == ["done", 1000, "done", 1201, "done"]


async def test_a_caller_that_goes_away_while_it_waits_is_skipped(scene):
    async with scene() as s:
        s.gate.held = {"handle"}
        first = s.asks(1)
        await s.held()
        gone, stays = s.asks(777, 2)
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        s.gate.open()
        assert await outcomes([*first, stays]) == ["done", "done"]
        assert await clock_of(s) == 2
        assert s.batches == [1, 1]


async def test_callers_that_all_go_away_in_flight_stall_nobody(scene):
    async with scene() as s:
        s.gate.held = {"handle"}
        tasks = s.asks(*range(1, 20))
        await s.held()
        for task in tasks:
            task.cancel()
        after = s.asks(30)
        await asyncio.sleep(0)
        s.gate.open()
        assert await outcomes(after) == ["done"]
        channel = s.backend.channels._channels[s.detector_id]
        assert (len(channel._mailbox), channel._mailbox.bytes, channel._in_flight) == (0, 0, [])


async def test_callers_that_go_away_make_room_for_others(scene):
    async with scene(waiting_max=3) as s:
        s.gate.held = {"handle"}
        first = s.asks(1)
        await s.held()
        waiting = s.asks(2, 3, 4)
        await asyncio.sleep(0)
        assert await outcomes(s.asks(5)) == [1401]
        waiting[1].cancel()
        await asyncio.sleep(0)
        late = s.asks(6)
        await asyncio.sleep(0)
        s.gate.open()
        assert await outcomes([*first, waiting[0], waiting[2], *late]) == ["done"] * 4


async def test_too_many_bytes_that_wait_are_refused(scene):
    async with scene(waiting_bytes_max=1000) as s:
        s.gate.held = {"handle"}
        tasks = s.asks(1)
        await s.held()
        tasks += [s.ask(event(2, padding="x" * 500)) for _ in range(3)]
        await asyncio.sleep(0)
        s.gate.open()
        assert sorted(await outcomes(tasks), key=str) == [1401, 1401, "done", "done"]


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


async def test_deadlines_of_later_requests_are_met_too(scene):
    async with scene(deadline_s=0.3) as s:
        s.gate.held = {"activate"}
        tasks = s.asks(1)
        await asyncio.sleep(0.1)
        tasks += s.asks(2)
        await asyncio.sleep(0.1)
        tasks += s.asks(3)
        assert await outcomes(tasks) == [1501] * 3


async def test_the_deadline_of_what_is_in_flight_is_met_after_that_of_an_earlier_request(scene):
    async with scene(deadline_s=0.3) as s:
        assert await outcomes(s.asks(1)) == ["done"]
        await asyncio.sleep(0.15)
        s.gate.held = {"handle"}
        assert await outcomes(s.asks(2)) == [1502]


async def test_what_is_overdue_is_not_sent_even_if_the_loop_was_late(scene):
    async with scene(deadline_s=0.3) as s:
        assert await outcomes(s.asks(1)) == ["done"]
        tasks = s.asks(999)
        await asyncio.sleep(0)
        # The loop is held up between the moment when the request was queued and that when it would be sent.
        asyncio.get_running_loop().clock.now_s += 0.35
        assert await outcomes(tasks) == [1501]
        assert await clock_of(s) == 1


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
