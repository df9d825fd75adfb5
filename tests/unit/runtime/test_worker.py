"""An actor that is called by two threads is in its state with one of them at a time."""

import inspect
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from engine.runtime.cluster.worker import WorkerActor
from engine.runtime.contract import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.actor import DetectorActor
from tests.local_runtime import newborn

ID = "a" * 32
BATCH = ops.encode_batch([ops.rules()])

CALLS: dict[str, Callable[[WorkerActor], object]] = {
    "activate": lambda actor: actor.activate(ID, 1),
    "handle": lambda actor: actor.handle_bytes(BATCH),
    "sync": lambda actor: actor.sync(),
    "begin_saving": lambda actor: actor.begin_saving(),
    "passivate": lambda actor: actor.passivate(),
    "discard": lambda actor: actor.discard(),
}
BESIDE = {"health", "watch", "finish_saving"}


def test_every_method_is_known_to_be_one_of_those_that_take_turns_or_of_those_beside() -> None:
    methods = {name for name, _ in inspect.getmembers(DetectorActor, inspect.isfunction) if name[0] != "_"}
    assert methods == set(CALLS) | BESIDE


@pytest.mark.parametrize("other", CALLS)
@pytest.mark.parametrize("name", CALLS)
def test_no_two_threads_are_in_the_actors_state_at_once(name, other, tmp_path, monkeypatch):
    inside, most = 0, 0
    counting = threading.Lock()

    def slow(*_: object) -> object:
        nonlocal inside, most
        with counting:
            inside += 1
            most = max(most, inside)
        time.sleep(0.005)
        with counting:
            inside -= 1
        return ops.Reply([])

    for each in CALLS:
        monkeypatch.setattr(DetectorActor, each, slow)
    monkeypatch.setattr("engine.runtime.cluster.worker.FrozenHeap", Mock)
    monkeypatch.setattr("engine.runtime.cluster.worker.collect_seldom", lambda: None)
    actor = WorkerActor(RuntimeSettings(data=tmp_path))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda call: call(actor), [CALLS[name], CALLS[other]]))
    assert most == 1


def test_what_calls_itself_does_not_wait_for_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.runtime.cluster.worker.collect_seldom", lambda: None)
    monkeypatch.setattr("engine.runtime.cluster.worker.FrozenHeap", Mock)
    newborn(tmp_path, ID)
    actor = WorkerActor(RuntimeSettings(data=tmp_path, journal_sync="off"))
    actor.activate(ID, 1)
    body = b'{"event": {"fields": {}, "timestamp_ms": 1}}'
    with ThreadPoolExecutor(1) as threads:
        reply = threads.submit(actor.handle_bytes, ops.encode_batch([ops.evaluate(body)])).result(10)
        assert ops.decode_reply(reply).unsaved
        threads.submit(actor.passivate).result(10)
    assert actor.health().detector_id is None
