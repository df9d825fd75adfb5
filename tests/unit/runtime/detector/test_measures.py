"""What a worker measures of its detectors' calls."""

import itertools
from pathlib import Path

import pytest

from engine.language.limits import Limits
from engine.runtime.contract.measures import (
    ACTIVATION_SECONDS,
    BATCH_OPERATIONS,
    BATCH_SECONDS,
    JOURNAL_SECONDS,
    JOURNAL_SYNC_SECONDS,
    SNAPSHOT_PAUSE_SECONDS,
    SNAPSHOT_SECONDS,
    Measures,
)
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.tuples import TuplesPart
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector import executor
from engine.runtime.detector.executor import OperationExecutor
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.owners import event

ONE = "1" * 32


@pytest.fixture
def actor(tmp_path: Path) -> OperationExecutor:
    newborn(tmp_path, ONE)
    settings = RuntimeSettings(data=tmp_path, limits=Limits(keys_max=1))
    return OperationExecutor(settings, measures=Measures(), now_us=lambda: 0)


def test_each_call_is_timed_with_all_that_it_waits_for(
    actor: OperationExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock ticks whenever it is read."""
    monkeypatch.setattr(executor.time, "perf_counter", map(float, itertools.count(1)).__next__)
    actor.activate(ONE, 1)
    actor.handle([ops.rules(), ops.add_rule("r", "a == 1")])
    assert actor.begin_saving()
    actor.finish_saving()
    totals = {name: one.total for name, one in actor.measures.histograms.items() if sum(one.within)}
    assert totals == {
        ACTIVATION_SECONDS: 1,
        JOURNAL_SYNC_SECONDS: 1,
        JOURNAL_SECONDS: 3,
        BATCH_SECONDS: 6,  # read once more before the second operation
        BATCH_OPERATIONS: 2,
        SNAPSHOT_PAUSE_SECONDS: 1,
        SNAPSHOT_SECONDS: 1,
    }


def test_evicted_keys_and_shadow_rules_that_fire_are_counted(actor: OperationExecutor) -> None:
    actor.activate(ONE, 1)
    actor.handle([ops.add_rule("r", "per k once a == 1"), ops.add_rule("s", "a == 1", shadow=True)])
    for number in range(3):
        actor.handle([event(number, k=number, a=1)])
    assert actor.measures.keys_evicted == 2
    assert actor.measures.shadows["shadow"] == 3


def test_the_figures_of_a_detector_are_those_of_its_state(actor: OperationExecutor) -> None:
    assert actor.figures() is None
    actor.activate(ONE, 1)
    reply = actor.handle([ops.add_rule("r", "per k once a == 1"), event(1, k=1, a=1)])
    figures = actor.figures()
    assert figures is not None
    assert (figures.id, figures.epoch, figures.rules, figures.keys) == (ONE, 0, 1, 1)
    assert figures.journal_bytes == reply.journal_bytes
    assert figures.state_bytes > 0
    assert figures.relations_bytes == 0
    part = TuplesPart("ndjson", b'"a"\n')
    actor.handle([ops.stage_tuples("u", 0, part), ops.put_relation("known", "u", 1)])
    figures = actor.figures()
    assert figures is not None
    assert figures.relations_bytes > 0
