"""Threads that compute for long take turns, in the order in which they came, and only while they compute."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.concurrency.threads import Turns
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.store import Store
from tests.local_runtime.catalogues import newborn

ID = "a" * 32


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def wait_for(turns: Turns, count: int) -> None:
    """Wait until so many threads wait."""
    patience = threading.Event()
    for _ in range(10_000):
        if len(turns._waiting) == count:
            return
        patience.wait(0.001)
    raise AssertionError("they do not come")


def test_turns_come_in_the_order_of_the_threads_and_go_round() -> None:
    clock, said = Clock(), []
    turns = Turns(clock)

    def compute(name: str) -> None:
        with turns:
            for step in range(2):
                said.append(f"{name}{step}")
                clock.now_s += 1
                turns.pass_on()

    threads = [threading.Thread(target=compute, args=(name,)) for name in "abc"]
    with turns:
        for place, thread in enumerate(threads):
            thread.start()
            wait_for(turns, place + 1)
        assert not said
    for thread in threads:
        thread.join()
    assert said == ["a0", "b0", "c0", "a1", "b1", "c1"]


def test_a_turn_is_passed_on_only_after_a_while_and_only_if_others_wait() -> None:
    clock, said = Clock(), []
    turns = Turns(clock)

    def compute() -> None:
        with turns:
            said.append("other")

    other = threading.Thread(target=compute)
    with turns:
        clock.now_s = 5.0
        turns.pass_on()
        other.start()
        wait_for(turns, 1)
        clock.now_s = 0.009
        turns.pass_on()
        assert not said
        clock.now_s = 0.01
        turns.pass_on()
        assert said == ["other"]
    other.join()


def test_what_fails_gives_its_turn_back() -> None:
    turns = Turns()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), turns:
            raise ZeroDivisionError
    with turns:
        turns.pass_on()
    with turns:
        pass


def test_a_batch_has_its_turn_while_it_computes_and_not_while_it_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a disk that hangs would stop the detectors whose data is on another."""
    newborn(tmp_path, ID)
    actor = OperationExecutor(RuntimeSettings(data=tmp_path))
    actor.activate(ID, 1)
    turns, taken = Turns(), {}
    sync, take = Store.sync, OperationExecutor._take

    def noted(name: str, call: Any) -> Any:
        def noting(*arguments: Any) -> Any:
            taken[name] = turns._taken
            return call(*arguments)

        return noting

    monkeypatch.setattr(Store, "sync", noted("sync", sync))
    monkeypatch.setattr(OperationExecutor, "_take", noted("take", take))
    events = [{"fields": {}, "timestamp_ms": number} for number in range(3)]
    actor.handle([ops.evaluate_batch(json.dumps({"events": events}).encode())], turns)
    assert taken == {"take": True, "sync": False}
    actor.discard()


@pytest.mark.parametrize("of", ["json", "lines", "dry"])
def test_a_long_batch_passes_its_turn_on_and_is_one_record_all_the_same(tmp_path: Path, of: str) -> None:
    newborn(tmp_path, ID)
    actor = OperationExecutor(RuntimeSettings(data=tmp_path))
    actor.activate(ID, 1)
    passed: list[int] = []

    class Counted(Turns):
        def pass_on(self) -> None:
            passed.append(actor._active.store.journal_bytes)

    events = [{"fields": {"text": "x" * 500}, "timestamp_ms": number} for number in range(600)]
    batch = json.dumps({"events": events}).encode()
    made = {
        "json": ops.evaluate_batch(batch),
        "lines": ops.evaluate_lines(b"\n".join(json.dumps({"event": event}).encode() for event in events)),
        "dry": ops.dry_run_batch(batch),
    }[of]
    before = actor._active.store.journal_bytes
    reply = actor.handle([made], Counted())
    assert len(reply.answers) == 1
    assert len(passed) > 5
    assert set(passed) == {before}, "nothing of it reaches the journal before all is done"
    assert (reply.journal_bytes > before) is (of != "dry")
    actor.discard()
