"""Workers that die, hang or answer nonsense: what becomes of the requests, and of the detector."""

import asyncio
import json
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import PutRule
from engine.runtime.detector import apply as apply_module
from tests.faulty_files import FaultyFiles
from tests.local_runtime.owners import event
from tests.local_runtime.service import local_service, until
from tests.unit.runtime.activation.queue.scene import clock_of, outcome, outcomes

pytestmark = pytest.mark.skipping_clock


@pytest.mark.parametrize(("held_s", "told"), [(10, "done"), (30, 1502)])
async def test_a_change_of_many_rules_has_as_long_as_an_activation_and_what_waits_behind_it_its_deadline(
    scene, held_s, told
):
    async with scene(deadline_s=5, hung_s=0.5, activation_hung_s=20) as s:
        s.gate.held = {"handle"}
        change = s.ask(ops.put_rules([PutRule("r", "a == 1")]))
        await s.held()
        changed, behind = s.actor, s.asks(1)
        await asyncio.sleep(6)
        assert behind[0].done()
        assert await outcomes(behind) == [1501]
        await asyncio.sleep(held_s - 6)
        s.gate.open()
        assert await outcomes([change]) == [told]
        assert changed.dead is (told == 1502)


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
        await s.backend.call(s.detector_id, ops.add_rule("r", "a == 1"))
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
        await until(lambda: not s.service.scheduler.active_detectors)
        assert await outcomes([s.ask(ops.rules())]) == ["done"]
        assert await clock_of(s) == 2
        assert s.service.scheduler.counts["snapshots_written"] == 0


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


async def test_a_detector_whose_journal_failed_at_passivation_is_activated_for_the_next_request(tmp_path):
    files = FaultyFiles()
    settings: dict[str, Any] = {
        "journal_sync": "interval",
        "journal_sync_interval_s": 100,
        "passivate_after_s": 0.05,
    }
    async with local_service(tmp_path, files=files, retry_s=10, **settings) as service:
        detector_id = await service.backend.create_detector("one")
        await service.backend.call(detector_id, event(1))
        files.fail_next("sync_data")
        await until(lambda: files.failed)
        files.fails_at = None
        assert outcome(await service.backend.call(detector_id, event(2))) == "done"
