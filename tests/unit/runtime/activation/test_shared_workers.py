"""Detectors that share a worker: each is as safe, and as much by itself, as in a process of its own."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.evaluation.wire.events import Refused
from engine.language.diagnostics import Refusal
from engine.runtime.activation.loads import Leaver, RateMeter, Rates, Totals, leaver
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.figures import DetectorFigures
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.errors import WriteFailed
from tests.local_runtime.owners import event
from tests.local_runtime.service import LocalService, local_service, until
from tests.local_runtime.workers import LocalWorker
from tests.unit.runtime.backend.requests import fired

pytestmark = pytest.mark.skipping_clock


SHARED = {"detectors_per_worker": 4, "max_resident": 4, "spares": 1, "retry_s": 0.01}


async def outcome(service: LocalService, detector_id: str, operation: Operation) -> int | str:
    """`done`, or the code of what came instead."""
    try:
        answer = await asyncio.wait_for(service.backend.call(detector_id, operation), 10)
    except (Refusal, DetectorUnavailable) as error:
        return error.code
    return answer.entries[0].code if isinstance(answer, Refused) else "done"


async def detectors(service: LocalService, count: int) -> list[str]:
    """Make detectors that share a worker, each with a rule and an event."""
    ids = [await service.backend.create_detector(f"{number}") for number in range(count)]
    for detector_id in ids:
        await service.backend.call(detector_id, ops.add_rule("seen", "once a == 1"))
        assert await fired(service.backend, detector_id, 1, a=1) == ["seen"]
    return ids


def home(service: LocalService, *ids: str) -> LocalWorker:
    """The worker that all of them share."""
    (worker,) = {service.actors.with_detector(detector_id) for detector_id in ids}
    assert worker is not None
    return worker


def events_seen(service: LocalService, detector_id: str) -> int:
    worker = service.actors.with_detector(detector_id)
    assert worker is not None
    (active,) = [
        actor._active
        for actor in worker.actors
        if actor._active is not None and actor._active.detector_id == detector_id
    ]
    return active.detector.events_seen


async def test_one_that_waits_for_its_disk_does_not_hold_the_others(tmp_path):
    async with local_service(tmp_path, **SHARED) as service:
        slow, *others = await detectors(service, 3)
        worker = home(service, slow, *others)
        go_on = asyncio.Event()
        held: list[str] = []

        async def before(call: str) -> None:
            if call == "handle" and not held:
                held.append(call)
                await go_on.wait()

        worker.before = before
        waits = asyncio.create_task(fired(service.backend, slow, 2))
        await until(lambda: held)
        for detector_id in others:
            assert await fired(service.backend, detector_id, 2) == ["seen"]
        assert not waits.done()
        go_on.set()
        assert await waits == ["seen"]


async def test_one_is_passivated_beside_the_others(tmp_path):
    async with local_service(tmp_path, **{**SHARED, "passivate_after_s": 0.2}) as service:
        idle, busy = await detectors(service, 2)
        worker = home(service, idle, busy)
        step = 2
        async with asyncio.timeout(10):
            while worker.hosts != {busy}:
                assert await fired(service.backend, busy, step) == ["seen"]
                step += 1
        assert not worker.dead
        channels = service.backend.channels
        assert channels[idle]._client is None, "its front end was told"
        assert channels[busy]._client is not None
        assert await fired(service.backend, idle, 2) == ["seen"]
        assert home(service, idle, busy) is worker


async def test_when_the_worker_dies_all_recover_and_nothing_acknowledged_is_lost(tmp_path):
    async with local_service(tmp_path, **SHARED) as service:
        ids = await detectors(service, 4)
        killed = home(service, *ids)
        killed.die()
        assert await asyncio.gather(*(fired(service.backend, one, 2) for one in ids)) == [["seen"]] * 4
        assert all(service.actors.with_detector(one) is not killed for one in ids)
        assert [events_seen(service, one) for one in ids] == [2] * 4
        assert service.scheduler.counts["detectors_lost"] == 4
        assert service.scheduler.counts["journal_records_read"] == 2 * 4


async def test_one_that_has_a_later_owner_is_dropped_alone(tmp_path):
    async with local_service(tmp_path, **SHARED) as service:
        fenced, other = await detectors(service, 2)
        worker = home(service, fenced, other)
        owner = OperationExecutor(RuntimeSettings(data=tmp_path))
        owner.activate(fenced, 2**40)
        assert await outcome(service, fenced, event(2)) == 1502
        await until(lambda: worker.hosts == {other})
        assert await fired(service.backend, other, 2) == ["seen"]
        assert not worker.dead
        assert service.scheduler.counts["owners_fenced"] == 1
        # The directory's epochs are earlier than that of the later owner, which nobody has ended.
        assert await outcome(service, fenced, event(3)) == 1501
        assert b"seen" in owner.handle([event(4)]).answers[0].result


async def test_what_an_activation_that_failed_leaves_in_memory_is_dropped(tmp_path):
    async with local_service(tmp_path, **SHARED) as service:
        broken, other = await detectors(service, 2)
        worker = home(service, broken, other)
        (queue,) = [one for one in worker.service.queues.values() if one.detector_id == broken]

        def fails(_: Any) -> Any:
            raise RuntimeError("the test")

        queue.activation.port.handle_at_once = fails
        assert await outcome(service, broken, event(2)) == 1500
        await until(lambda: worker.hosts == {other})
        await until(lambda: not any(_has(actor, broken) for actor in worker.actors))
        assert await fired(service.backend, broken, 3) == ["seen"]
        assert home(service, broken, other) is worker


async def test_one_that_hangs_takes_the_worker_with_it_and_all_recover(tmp_path):
    async with local_service(tmp_path, **{**SHARED, "hung_s": 0.05}) as service:
        hung, other = await detectors(service, 2)
        worker = home(service, hung, other)
        stuck: list[str] = []

        async def before(call: str) -> None:
            if call == "handle" and not stuck:
                stuck.append(call)
                await asyncio.Event().wait()

        worker.before = before
        first = asyncio.create_task(outcome(service, hung, event(2)))
        await until(lambda: stuck)
        behind = asyncio.create_task(outcome(service, hung, event(2)))
        assert [await first, await behind] == [1502, "done"]
        await until(lambda: worker.dead)
        for detector_id in (hung, other):
            assert await fired(service.backend, detector_id, 3) == ["seen"]


async def test_one_that_is_deleted_while_it_is_activated_leaves_the_others_alone(tmp_path):
    async with local_service(tmp_path, **SHARED) as service:
        others = await detectors(service, 2)
        worker = home(service, *others)
        go_on = asyncio.Event()

        async def before(call: str) -> None:
            if call == "activate":
                await go_on.wait()

        worker.before = before
        deleted = await service.backend.create_detector("deleted")
        asked = asyncio.create_task(outcome(service, deleted, event(1)))
        await until(lambda: any(call == "activate" for call, _ in worker.calls[-1:]))
        deletion = asyncio.create_task(service.backend.delete_detector(deleted))
        await asyncio.sleep(0.01)
        go_on.set()
        await deletion
        assert await asked == 1200
        await until(lambda: worker.hosts == set(others))
        assert not worker.dead
        assert not (tmp_path / "detectors" / deleted).exists()
        assert await fired(service.backend, others[0], 2) == ["seen"]
        more = await detectors(service, 1)
        home(service, *others, *more)


async def test_one_that_takes_too_much_of_the_processor_gets_a_worker_of_its_own(tmp_path):
    async with local_service(tmp_path, **{**SHARED, "load_s": 0.02, "turn_s": 0.0}) as service:
        busy, *others = await detectors(service, 3)
        worker = home(service, busy, *others)
        (queue,) = [one for one in worker.service.queues.values() if one.detector_id == busy]
        # All have been measured, and then it takes all of a processor.
        await until(lambda: worker.service._meter._before.keys() == worker.service.queues.keys())
        queue.activation.port.cpu_s += 1
        await until(lambda: worker.hosts == set(others))
        assert await fired(service.backend, busy, 2) == ["seen"]
        own = home(service, busy)
        assert own is not worker
        more = await detectors(service, 1)
        assert home(service, *others, *more) is worker
        assert own.hosts == {busy}


async def test_the_largest_leaves_a_worker_that_holds_too_much_memory(tmp_path, monkeypatch):
    held = [0]
    monkeypatch.setattr("engine.runtime.activation.detector_service.resident_bytes", lambda: held[0])
    settings = {**SHARED, "load_s": 0.02, "turn_s": 0.0, "actor_bytes_max": 2**40}
    async with local_service(tmp_path, **settings) as service:
        large, small = await detectors(service, 2)
        worker = home(service, large, small)
        await service.backend.call(large, ops.add_rule("per", "per k once a == 1"))
        for key in range(50):
            await fired(service.backend, large, 2, a=1, k=str(key))
        await asyncio.sleep(0.1)
        assert worker.hosts == {large, small}
        held[0] = 2**41
        await until(lambda: worker.hosts == {small})
        held[0] = 0
        assert await fired(service.backend, large, 3) == ["seen"]
        assert not worker.dead


LIGHT, BUSY, LARGE = (
    DetectorFigures(str(epoch), epoch, cpu=cpu, state_bytes=held // 2, relations_bytes=held // 2)
    for epoch, cpu, held in ((1, 0.02, 100), (2, 0.26, 200), (3, 0.04, 300))
)


@pytest.mark.parametrize(
    ("loads", "resident_bytes", "leaves"),
    [
        ([LIGHT, BUSY, LARGE], 0, Leaver(2, alone=True)),
        ([LIGHT, LARGE], 0, None),
        ([LIGHT, LARGE], 1_000, None),
        ([LIGHT, LARGE], 1_001, Leaver(3, alone=True)),
        ([LIGHT, LIGHT], 1_001, Leaver(1, alone=False)),
        ([BUSY], 1_001, None),
        ([], 1_001, None),
    ],
)
def test_who_takes_too_much_leaves(loads, resident_bytes, leaves):
    assert leaver(loads, resident_bytes, 1_000) == leaves


def test_rates_are_those_since_the_last_look_and_one_that_is_alone_has_all_of_the_processor_time() -> None:
    used_s = 100.0
    meter = RateMeter(lambda: used_s)
    assert meter.measure(1_000.0, {7: Totals(50, 0.0)}) == {}
    used_s = 101.0
    assert meter.measure(1_005.0, {7: Totals(60, 0.0)}) == {7: Rates(2.0, 0.2)}
    used_s = 104.0
    two = {7: Totals(60, 0.5), 8: Totals(1_000, 4.0)}
    assert meter.measure(1_010.0, two) == {7: Rates(0.0, 0.1)}
    both = {7: Totals(110, 0.5), 8: Totals(1_001, 6.0)}
    assert meter.measure(1_015.0, both) == {7: Rates(10.0, 0.0), 8: Rates(0.2, 0.4)}


STEP = st.one_of(
    st.tuples(st.just("event"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["break", "kill", "unwritable"]), st.integers(0, 4)),
)


@pytest.mark.slow
@settings(max_examples=max(5, settings.default.max_examples // 2), deadline=None)
@given(steps=st.lists(STEP, min_size=5, max_size=30))
def test_whatever_fails_what_was_acknowledged_is_there(tmp_path_factory, steps):
    """Five detectors, three at once, two in a worker; each is asked alone, and all at the same time."""
    asyncio.run(_survives(tmp_path_factory.mktemp("data"), steps))


async def _survives(data: Any, steps: list[tuple[str, int]]) -> None:
    chosen = {"detectors_per_worker": 2, "max_resident": 3, "spares": 0, "retry_s": 0.001, "turn_s": 0.0}
    async with local_service(data, **chosen) as service:
        ids = [await service.backend.create_detector(f"{number}") for number in range(5)]
        done, sent = dict.fromkeys(ids, 0), dict.fromkeys(ids, 0)

        async def send(detector_id: str) -> None:
            sent[detector_id] += 1
            if await outcome(service, detector_id, event(sent[detector_id])) == "done":
                done[detector_id] += 1

        for kind, number in steps:
            worker = service.actors.with_detector(ids[number])
            active = [one for one in worker.actors if _has(one, ids[number])] if worker is not None else []
            sending = [asyncio.create_task(send(detector_id)) for detector_id in ids]
            match kind:
                case "kill" if worker is not None:
                    await asyncio.sleep(0)
                    worker.die()
                case "break":
                    for actor in active:
                        actor._take = None
                case "unwritable":
                    for actor in active:
                        actor._active.store.broken = WriteFailed("the test")
            await asyncio.gather(*sending)
        for detector_id in ids:
            await send(detector_id)
            while (worker := service.actors.with_detector(detector_id)) is None:
                await send(detector_id)
            assert done[detector_id] <= events_seen(service, detector_id) <= sent[detector_id]


def _has(actor: OperationExecutor, detector_id: str) -> bool:
    return actor._active is not None and actor._active.detector_id == detector_id
