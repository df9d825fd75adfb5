"""A detector queue: one batch in flight, and an answer to every request whatever happens."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector import apply as apply_module
from tests.faulty_files import FaultyFiles
from tests.local_runtime import LocalService, LocalWorker, local_service, until

pytestmark = pytest.mark.skipping_clock


class Gate:
    """Holds calls of the kinds in `held` up until it is opened; `held_up` counts those that came to it."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.held_up = 0
        self._open = asyncio.Event()

    async def before(self, call: str) -> None:
        if call in self.held:
            self.held_up += 1
            await self._open.wait()

    def open(self) -> None:
        self.held.clear()
        self._open.set()
        self._open = asyncio.Event()


class Scene:
    """A service with one detector that has one rule, and a gate before its actors' calls."""

    def __init__(self, service: LocalService, gate: Gate, detector_id: str) -> None:
        self.service = service
        self.fleet = service.fleet
        self.gate = gate
        self.detector_id = detector_id

    @property
    def actor(self) -> LocalWorker:
        worker = self.service.actors.with_detector(self.detector_id)
        assert worker is not None, "the detector is active"
        return worker

    @property
    def batches(self) -> list[int]:
        return [size for one in self.service.actors.started for call, size in one.calls if call == "handle"]

    def ask(self, operation: Operation) -> asyncio.Task[Any]:
        return asyncio.create_task(self.fleet.call(self.detector_id, operation))

    def asks(self, *timestamps_ms: float) -> list[asyncio.Task[Any]]:
        return [self.ask(event(timestamp_ms)) for timestamp_ms in timestamps_ms]

    async def held(self) -> None:
        """Come back when a call is held up."""
        await until(lambda: self.gate.held_up)


def event(timestamp_ms: float, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


@pytest.fixture
def scene(tmp_path):
    @asynccontextmanager
    async def scene(**settings: Any) -> AsyncIterator[Scene]:
        gate = Gate()
        async with local_service(tmp_path, **{"retry_s": 0.01, **settings}) as service:
            service.actors.before = gate.before
            for actor in service.actors.started:
                actor.before = gate.before
            # Not through the fleet, whose deadline may be shorter than a disk is slow.
            detector_id = "1" * 32
            service.directories.started[-1].directory.create_detectors({detector_id: "one"})
            yield Scene(service, gate, detector_id)
            gate.open()

    return scene


async def outcomes(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    """`done`, or the code of what came instead."""
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    return [outcome(result) for result in results]


def outcome(result: Any) -> Any:
    match result:
        case Done():
            return "done"
        case Refused(entries):
            return entries[0].code
        case Refusal() | DetectorUnavailable():
            return result.code
        case _:
            return result


async def clock_of(scene: Scene) -> float:
    """The time of the last event that was evaluated, in ms."""
    return scene.actor.actor._active.detector.clock_us / 1000


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
                await s.fleet.call(s.detector_id, event(number + step))
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
        await s.fleet.call(s.detector_id, ops.add_rule("r", "once a == 1"))
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
        channel = s.fleet.channels._channels[s.detector_id]
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


async def test_an_actor_that_does_not_answer_is_ended_and_the_detector_goes_on(scene):
    async with scene(deadline_s=5, hung_s=0.5) as s:
        assert await outcomes(s.asks(1)) == ["done"]
        hung = s.actor
        s.gate.held = {"handle"}
        first = s.asks(2)
        await s.held()
        behind = s.asks(3)
        await asyncio.sleep(0)
        s.gate.held.clear()
        assert await outcomes(first + behind) == [1502, "done"]
        assert hung.dead
        assert s.actor is not hung


async def test_an_actor_that_hangs_while_it_activates_a_detector_is_ended_and_another_does_it(scene):
    async with scene(activation_hung_s=0.05) as s:
        s.gate.held = {"activate"}
        tasks = s.asks(1)
        await s.held()
        (hung,) = [one for one in s.service.actors.started if one.calls]
        s.gate.held.clear()
        assert await outcomes(tasks) == ["done"]
        assert hung.dead
        assert s.actor is not hung


async def test_death_in_flight_is_1502_for_those_and_the_others_are_evaluated_elsewhere(scene):
    async with scene() as s:
        await s.fleet.call(s.detector_id, ops.add_rule("r", "a == 1"))
        s.gate.held = {"handle"}
        first = s.asks(1, 2)
        await s.held()
        behind = [s.ask(event(3, a=1)), *s.asks(4)]
        await asyncio.sleep(0)
        killed = s.actor
        s.gate.held.clear()
        killed.die()
        assert await outcomes(first + behind) == [1502, 1502, "done", "done"]
        assert len(json.loads(behind[0].result().result)["actions"]) == 1, "the rule is there again"
        assert s.actor is not killed


async def test_death_while_nothing_is_in_flight_is_noticed_by_nobody(scene):
    async with scene() as s:
        assert await outcomes(s.asks(1)) == ["done"]
        s.actor.die()
        await asyncio.sleep(0)
        assert await outcomes(s.asks(2)) == ["done"]


async def test_death_during_activation_costs_only_time(scene):
    async with scene() as s:
        s.gate.held = {"activate"}
        tasks = s.asks(1, 2)
        await s.held()
        (activating,) = [one for one in s.service.actors.started if one.calls]
        s.gate.held.clear()
        activating.die()
        assert await outcomes(tasks) == ["done", "done"]


async def test_a_detector_that_no_actor_survives_is_1501_and_is_tried_again_later(scene):
    async with scene() as s:

        async def die(call: str) -> None:
            if call == "activate":
                next(one for one in s.service.actors.started if one.in_flight).die()

        for actor in s.service.actors.started:
            actor.before = die
        s.service.actors.before = die
        assert await outcomes(s.asks(1, 2)) == [1501, 1501]
        assert await outcomes(s.asks(3)) == [1501], "at once, without another try"
        tried = len(s.service.actors.started)
        s.service.actors.before = s.gate.before
        for actor in s.service.actors.started:
            actor.before = s.gate.before
        await asyncio.sleep(0.03)
        assert await outcomes(s.asks(4)) == ["done"]
        assert tried <= len(s.service.actors.started)


async def test_death_while_it_saves_or_passivates_loses_no_request(scene):
    for call, soon in (("begin_saving", "snapshot_interval_s"), ("passivate", "passivate_after_s")):
        async with scene(**{soon: 0.01}) as s:
            s.gate.held = {call}
            assert await outcomes(s.asks(1)) == ["done"]
            await s.held()
            behind = s.asks(2)
            await asyncio.sleep(0)
            s.gate.held.clear()
            s.actor.die()
            assert await outcomes(behind) == ["done"]


async def test_death_while_a_snapshot_is_written_loses_nothing_that_was_answered(scene):
    async with scene(snapshot_interval_s=0.01) as s:
        s.gate.held = {"finish_saving"}
        assert await outcomes(s.asks(1)) == ["done"]
        await s.held()
        assert await outcomes(s.asks(2)) == ["done"], "others are answered meanwhile"
        s.gate.held.clear()
        s.actor.die()
        await until(lambda: not s.fleet.broker.active_detectors)
        assert await outcomes([s.ask(ops.rules())]) == ["done"]
        assert await clock_of(s) == 2
        assert s.fleet.broker.counts["snapshots_written"] == 0


async def test_an_operation_that_breaks_the_engine_is_1500_and_the_others_of_its_batch_are_answered(
    scene, monkeypatch, caplog
):
    evaluate_body = apply_module.evaluate_body

    def breaks(detector: Any, body: bytes) -> Any:
        if b"crash" in body:
            detector.clock_us = 10**15
            raise RuntimeError("an engine that breaks")
        return evaluate_body(detector, body)

    monkeypatch.setattr(apply_module, "evaluate_body", breaks)
    async with scene() as s:
        s.gate.held = {"activate"}
        tasks = [*s.asks(1), s.ask(event(2, crash=1)), *s.asks(3, 4)]
        await s.held()
        s.gate.open()
        assert await outcomes(tasks) == ["done", 1500, "done", "done"]
        assert s.batches == [4, 2]
        assert await clock_of(s) == 4, "the broken state is gone"
        (entry,) = tasks[1].result().entries
        reference = entry.message.rsplit(" ", 1)[-1]
        (record,) = [one for one in caplog.records if reference in one.getMessage()]
        assert "an engine that breaks" in record.detail
        assert "RuntimeError" not in entry.message


async def test_a_reply_that_makes_no_sense_is_1500_and_the_actor_is_ended(scene, monkeypatch, caplog):
    async with scene() as s:
        assert await outcomes(s.asks(1)) == ["done"]
        broken = s.actor

        def refuse(batch: Any) -> Any:
            raise ValueError("no reply")

        monkeypatch.setattr(broken.actor, "handle", refuse)
        assert await outcomes(s.asks(2)) == [1500]
        assert broken.dead
        assert "no reply" in caplog.text
        assert await outcomes(s.asks(3)) == ["done"]


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
        deletion = asyncio.create_task(s.fleet.delete_detector(s.detector_id))
        assert await outcomes(behind) == [1200, 1200]
        assert await outcomes(s.asks(5)) == [1200]
        s.gate.open()
        assert await outcomes(first) == ["done"]
        await deletion
        await until(lambda: not (tmp_path / "detectors" / s.detector_id).exists())
        assert await outcomes(s.asks(6)) == [1200]


async def test_deletion_during_activation_answers_1200_at_once(scene):
    async with scene() as s:
        s.gate.held = {"activate"}
        tasks = s.asks(1, 2)
        await s.held()
        await s.fleet.delete_detector(s.detector_id)
        assert await outcomes(tasks) == [1200, 1200]
        s.gate.open()
        assert s.fleet.broker.active_detectors == 0


async def test_deletion_leaves_nothing_behind_that_is_saved_later(scene, tmp_path):
    async with scene(snapshot_interval_s=0.01) as s:
        await s.fleet.call(s.detector_id, ops.add_rule("r", "a == 1"))
        await outcomes(s.asks(1))
        await s.fleet.delete_detector(s.detector_id)
        await asyncio.sleep(0.05)
        assert list((tmp_path / "detectors").iterdir()) == []


async def test_closing_answers_what_waits_and_then_refuses(scene):
    async with scene() as s:
        s.gate.held = {"handle"}
        tasks = s.asks(1)
        await s.held()
        tasks += s.asks(2, 3)
        await asyncio.sleep(0)
        closing = asyncio.create_task(s.fleet.close())
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
        assert await asyncio.wait_for(s.fleet.close(), 5) == [], "nothing that was answered is lost"
        assert await outcomes(tasks) == [1502, 1503]


async def test_closing_says_where_what_was_answered_may_be_lost(scene):
    # The snapshot at shutdown may take a while on a busy machine. What hangs after it ends it early.
    async with scene(shutdown_s=30, hung_s=0.3, journal_sync="off") as s:
        assert await outcomes(s.asks(1)) == ["done"]
        s.gate.held = {"passivate"}
        (unsaved,) = await asyncio.wait_for(s.fleet.close(), 60)
        assert s.detector_id in unsaved
        assert "not answered" in unsaved


async def test_closing_during_activation_answers_1503(scene):
    async with scene(shutdown_s=0.02) as s:
        s.gate.held = {"activate"}
        tasks = s.asks(1)
        await s.held()
        await asyncio.wait_for(s.fleet.close(), 5)
        assert await outcomes(tasks) == [1503]


def keyed(timestamp_ms: float, key: str) -> Operation:
    return ops.evaluate(event(timestamp_ms).payload, key)


@pytest.mark.parametrize(("ending", "code"), [("delete", 1200), ("close", 1502)])
async def test_what_was_to_be_sent_again_is_answered_at_once_if_the_queue_ends(scene, ending, code):
    async with scene(shutdown_s=0.05) as s:
        s.gate.held = {"handle"}
        task = s.ask(keyed(1, "k"))
        await s.held()
        end = s.fleet.delete_detector(s.detector_id) if ending == "delete" else s.fleet.close()
        ended = asyncio.create_task(end)
        await asyncio.sleep(0.2)
        s.gate.held = {"activate"}
        s.actor.die()
        assert await asyncio.wait_for(outcomes([task]), 5) == [code]
        await asyncio.wait_for(ended, 5)


async def test_a_detector_whose_journal_failed_at_passivation_is_activated_for_the_next_request(tmp_path):
    files = FaultyFiles()
    settings: dict[str, Any] = {
        "journal_sync": "interval",
        "journal_sync_interval_s": 100,
        "passivate_after_s": 0.05,
    }
    async with local_service(tmp_path, files=files, retry_s=10, **settings) as service:
        detector_id = await service.fleet.create_detector("one")
        await service.fleet.call(detector_id, event(1))
        files.fail_next("sync_data")
        await until(lambda: files.failed)
        files.fails_at = None
        assert outcome(await service.fleet.call(detector_id, event(2))) == "done"


@pytest.mark.parametrize("sync", ["always", "interval", "off"])
async def test_a_service_that_has_saved_all_does_not_say_that_it_has_not(tmp_path, sync):
    async with local_service(tmp_path, journal_sync=sync) as service:
        detector_id = await service.fleet.create_detector("one")
        await service.fleet.call(detector_id, event(1))
        assert await service.fleet.close() == []


async def test_an_actor_that_dies_right_after_its_answer_is_not_asked_again(scene):
    async with scene() as s:
        assert await outcomes(s.asks(1)) == ["done"]
        actor = s.actor
        last = s.ask(event(2))
        last.add_done_callback(lambda _: actor.die())
        assert await outcomes([last]) == ["done"]
        assert await outcomes(s.asks(3)) == ["done"]
        assert s.fleet.broker.counts["detectors_lost"] == 1


async def test_a_snapshot_under_way_is_not_followed_by_one_for_the_same_journal(scene):
    async with scene(snapshot_journal_bytes=2_000) as s:
        s.gate.held = {"finish_saving"}
        while not s.gate.held_up:
            assert await outcomes(s.asks(1)) == ["done"]
        assert await outcomes(s.asks(1)) == ["done"]
        calls = s.actor.calls
        s.gate.open()
        await until(lambda: s.fleet.broker.counts["snapshots_written"])
        assert await outcomes(s.asks(1)) == ["done"]
        await asyncio.sleep(0.05)
        assert [call for call, _ in calls].count("begin_saving") == 1


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
            await s.fleet.call(s.detector_id, ops.add_rule(f"rule {number}", "once a == 1"))
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
