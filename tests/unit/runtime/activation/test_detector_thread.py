"""The detector of a worker: one call at a time, and an event loop that goes on beside long ones."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.activation import detector_thread
from engine.runtime.activation.detector_thread import DetectorThread, WorkerThreads
from engine.runtime.cluster.actors import detector_actor
from engine.runtime.contract.measures import Measures
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector import active_detector, executor
from engine.runtime.detector.executor import OperationExecutor
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.owners import event

ID = "a" * 32


LARGE = event(2, text="x" * 100_000)

SHORT = [
    *(ops.rules(), ops.rule(ID), ops.versions(ID), ops.explain(b"{}"), ops.dry_run(b"{}"), ops.firings(0)),
    *(ops.add_rule("a", "x == 1"), ops.change_rule(ID, name="b"), ops.remove_rule(ID), ops.promote(ID)),
    *(ops.put_rules([], dry_run=True), ops.put_rules([], prune=True), ops.relation("a"), ops.relations()),
]
"""Short requests which take the longer the more the detector holds."""


def made(data: Path) -> OperationExecutor:
    return OperationExecutor(RuntimeSettings(data=data), measures=Measures())


@pytest.fixture(autouse=True)
def _heap(monkeypatch):
    monkeypatch.setattr(detector_thread, "FrozenHeap", lambda _: Mock())


@pytest.fixture
def detector(tmp_path):
    newborn(tmp_path, ID)
    return DetectorThread(made(tmp_path), WorkerThreads(1))


async def test_small_and_large_batches_are_executed_in_order(detector):
    await detector.activate(ID, 1)
    await detector.handle([ops.add_rule("seen", "once a == 1")])
    for batch in ([event(1, a=1)], [LARGE], [event(3), event(4)]):
        reply = await detector.handle(batch)
        for answer in reply.answers:
            assert isinstance(answer, Done)
            assert json.loads(answer.result)["actions"][0]["name"] == "seen"
    assert await detector.passivate() > 0
    await detector.activate(ID, 2)
    (answer,) = (await detector.handle([event(5)])).answers
    assert json.loads(answer.result)["actions"], "nothing was lost"
    await detector.discard()


@pytest.mark.parametrize(
    ("method", "arguments", "beside"),
    [
        ("handle", ([LARGE],), True),
        ("handle", ([event(1)],), False),
        ("handle", ([event(1), ops.evaluate_batch(b"{}"), ops.evaluate_lines(b"{}")],), False),
        ("handle", ([ops.tick(b'{"timestamp_ms": 1}')],), True),
        *[("handle", ([event(1), one],), True) for one in SHORT],
        ("handle", ([Operation(ops.TICK_DUE, b"")],), True),
        ("passivate", (), True),
        ("discard", (), True),
        ("activate", (ID, 1), True),
    ],
)
async def test_only_a_small_batch_is_executed_in_the_event_loop(detector, method, arguments, beside):
    threads = []
    setattr(detector.executor, method, lambda *_: threads.append(threading.current_thread()) or "done")
    await getattr(detector, method)(*arguments)
    assert (threads != [threading.current_thread()]) is beside


async def test_the_events_of_many_rules_are_evaluated_in_a_thread(detector, monkeypatch):
    monkeypatch.setattr(executor, "_MANY_RULES", 1)
    threads = []
    await detector.activate(ID, 1)
    handle = detector.executor.handle
    detector.executor.handle = lambda *given: threads.append(threading.current_thread()) or handle(*given)
    for name in ("one", "two"):
        await detector.handle([ops.add_rule(name, "a == 1")])
        await detector.handle([event(1)])
    assert [one is threading.current_thread() for one in threads] == [False, True, False, False]
    await detector.discard()


async def test_work_of_the_executor_is_done_in_threads(detector):
    in_them = {await detector.call(threading.current_thread), await detector.beside(threading.current_thread)}
    assert len(in_them - {threading.current_thread()}) == 2


async def test_an_event_after_a_long_silence_lets_others_go_on_between_what_fires(detector, monkeypatch):
    monkeypatch.setattr(active_detector, "_MANY_WAIT", 200)
    detector._threads.turns = turns = Mock(__enter__=Mock(), __exit__=Mock(return_value=None))
    await detector.activate(ID, 1)
    await detector.handle([ops.add_rule("silent", "per host (not once within 5m a == 1)", timed=True)])
    await detector.handle([event(0, host=host, a=1) for host in range(300)])
    # The last batch did not take long.
    await detector.handle([event(1)])
    turns.reset_mock()
    await detector.handle([event(600_000)])
    assert turns.pass_on.call_count > 3
    await detector.handle([event(600_001)])
    turns.reset_mock()
    await detector.handle([event(1_300_000)])
    assert not turns.pass_on.called
    await detector.discard()


@pytest.mark.parametrize(("at_once", "holds_many"), [(True, False), (True, True), (False, False)])
async def test_what_has_nothing_to_write_and_is_small_is_passivated_in_the_event_loop(
    detector, monkeypatch, at_once, holds_many
):
    threads = []
    monkeypatch.setattr(OperationExecutor, "passivates_at_once", at_once)
    detector._threads.heap.holds_many = holds_many
    detector.executor.passivate = lambda: threads.append(threading.current_thread())
    await detector.passivate()
    assert (threads == [threading.current_thread()]) is (at_once and not holds_many)


@pytest.mark.parametrize("method", ["passivate", "discard"])
@pytest.mark.parametrize(("detectors", "rules"), [(2, 20), (2, 19), (1, 20)])
async def test_a_large_detector_that_leaves_others_is_freed_in_pieces(
    tmp_path, monkeypatch, method, detectors, rules
):
    monkeypatch.setattr(detector_thread, "_PIECES_FROM_BYTES", 20 * 4_096)
    newborn(tmp_path, ID)
    detector = DetectorThread(made(tmp_path), threads := WorkerThreads(detectors))
    await detector.activate(ID, 1)
    await detector.handle([ops.add_rule(f"{n}", f"a == {n}", notify=n == 1) for n in range(rules)])
    await detector.handle([event(1, a=1)])
    live, feed = detector.executor.detector.live, detector.executor.detector.feed
    gone = threading.Event()
    threads.heap.gone = gone.set
    await getattr(detector, method)()
    await asyncio.to_thread(gone.wait, 30)
    assert [len(live), len(feed)] == ([0, 0] if (detectors, rules) == (2, 20) else [rules, 1])


async def test_detectors_that_share_a_worker_do_not_wait_for_each_others_disk(tmp_path):
    threads = WorkerThreads(2)
    one, other = (DetectorThread(made(tmp_path), threads, lambda: False, lambda: True) for _ in range(2))
    go_on = threading.Event()
    one.executor.handle = lambda *_: go_on.wait(60)
    other.executor.handle = lambda *_: "done"
    waits = asyncio.ensure_future(one.handle([event(1)]))
    assert await other.handle([event(1)]) == "done"
    await other.beside(list)
    assert not waits.done()
    go_on.set()
    assert await waits


@pytest.mark.parametrize("alone", [False, True])
async def test_a_batch_waits_for_a_thread_if_others_wait_or_one_was_slow_lately(tmp_path, alone):
    """What is dear and what is not may come in turns, so one quick batch does not end it."""
    waits, now_s, took_s = False, 100.0, 0.0
    detector = DetectorThread(
        made(tmp_path), WorkerThreads(2), lambda: alone, lambda: waits, now_s=lambda: now_s
    )
    detector.executor.handle = lambda *_: time.sleep(took_s) or threading.current_thread()

    async def in_the_loop() -> bool:
        return await detector.handle([event(1)]) is threading.current_thread()

    assert await in_the_loop()
    waits = True
    assert await in_the_loop() is alone, "there is no other one that could wait"
    waits, took_s = False, 0.31 if alone else 0.03
    assert await in_the_loop(), "nobody knew that it would be slow"
    took_s = 0.0
    for later_s, expected in ((0.0, False), (2.9, False), (600.0, True)):
        now_s = 100 + later_s
        assert await in_the_loop() is expected


@pytest.mark.parametrize(
    ("busy_bytes", "other_bytes"), [(100_000, 10), (2_000_000, 10), (2_000_000, 100_000)]
)
async def test_what_is_quick_waits_for_no_thread_of_longer_batches(tmp_path, busy_bytes, other_bytes):
    threads = WorkerThreads(20)
    go_on = threading.Event()

    def place(work: Any) -> DetectorThread:
        made_one = DetectorThread(made(tmp_path), threads, lambda: False, lambda: True)
        made_one.executor.handle = work
        return made_one

    def sent(size: int) -> list[Operation]:
        return [ops.evaluate(b" " * size)]

    busy = [place(lambda *_: go_on.wait(40)) for _ in range(10)]
    waiting = [asyncio.ensure_future(one.handle(sent(busy_bytes))) for one in busy]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await place(lambda *_: "done").handle(sent(other_bytes)) == "done"
    assert not any(one.done() for one in waiting)
    go_on.set()
    assert all(await asyncio.gather(*waiting))


async def test_long_batches_take_turns_and_so_does_a_detector_that_computes_for_long(tmp_path):
    threads = WorkerThreads(2)
    detector = DetectorThread(made(tmp_path), threads, lambda: False, lambda: True)
    turns = []

    def work(_: object, turn: Any = None) -> None:
        turns.append(turn)
        if len(turns) == 2:
            until = time.thread_time() + 0.03
            while time.thread_time() < until:
                pass
        if len(turns) == 4:
            time.sleep(0.03)

    detector.executor.handle = work
    for batch in ([LARGE], [event(1)], [event(2)], [event(3)], [event(4)]):
        await detector.handle(batch)
    assert turns == [threads.turns, None, threads.turns, None, None], "waiting for the disk is not computing"


async def test_one_detector_is_activated_after_another(tmp_path):
    """Otherwise the crash of a replay would be taken for one of every replay under way."""
    threads = WorkerThreads(2)
    inside, most = 0, 0

    def slow(*_: object) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1

    places = [DetectorThread(made(tmp_path), threads) for _ in range(3)]
    for place in places:
        place.executor.activate = slow
    await asyncio.gather(*(place.activate(ID, 1) for place in places))
    assert most == 1


def test_the_title_of_a_worker_names_some_detectors_and_how_many_more_there_are():
    assert detector_actor.title([]) == "ray::DetectorActor"
    assert detector_actor.title(["a", "b", "c"]) == "ray::DetectorActor a b c"
    assert detector_actor.title(["a", "b", "c", "d", "e"]) == "ray::DetectorActor a b c and 2 more"
