"""What the rules of a detector fired and cost survives its passivation, a lost process and other limits."""

from typing import Any

import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.inspecting.holdings import overview
from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.kernel.indexing import indexed_stream
from engine.evaluation.persistence import saved
from engine.evaluation.persistence.figures import figures_of, restore_figures
from engine.language.limits import Limits
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector import active_detector
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence import detector_snapshot
from tests.differential.modes import index_from
from tests.local_runtime.owners import ONE, event
from tests.unit.runtime.detector.executor.requests import add, answer


def rules(actor: OperationExecutor) -> list[dict[str, Any]]:
    return list(answer(actor, ops.state(StateAsked(about="rules")))["rules"])


def times_true(actor: OperationExecutor) -> list[int]:
    return [rule["times_true"] for rule in rules(actor)]


@pytest.fixture(autouse=True)
def _saved_at_each_passivation(monkeypatch):
    monkeypatch.setattr(active_detector, "_PASSIVATED_JOURNAL_BYTES", 0)


def test_firings_are_counted_on_after_a_passivation_and_after_a_loss(make):
    actor = make()
    actor.activate(ONE, 1)
    add(actor, "a == 1")
    add(actor, "a >= 0")
    for a in (1, 1, 0, -1):
        answer(actor, event(1, a=a))
    actor.passivate()
    actor = make()
    assert actor.activate(ONE, 2).records == 0
    assert times_true(actor) == [2, 3]
    answer(actor, event(2, a=1))
    # The process is lost: the journal after the snapshot is replayed.
    actor = make()
    assert actor.activate(ONE, 3).records > 0
    assert times_true(actor) == [3, 4]
    assert answer(actor, ops.state(StateAsked()))["counted_since"] == {"event": 0}


def test_firings_are_counted_on_under_other_limits(make):
    actor = make()
    actor.activate(ONE, 1)
    add(actor, "a == 1")
    answer(actor, event(1, a=1))
    actor.passivate()
    actor = make(limits=Limits(keys_max=7))
    actor.activate(ONE, 2)
    assert times_true(actor) == [1]


def test_a_snapshot_without_figures_says_since_when_they_are_counted(make, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(detector_snapshot, "figures_of", lambda _: None)
        actor = make()
        actor.activate(ONE, 1)
        add(actor, "a == 1")
        answer(actor, event(5000, a=1))
        actor.passivate()
    for epoch in (2, 3):
        actor = make()
        actor.activate(ONE, epoch)
        assert times_true(actor) == [epoch - 2]
        since = answer(actor, ops.state(StateAsked()))["counted_since"]
        assert since == {"event": 1, "clock_ms": 5000}
        answer(actor, event(6000, a=1))
        actor.passivate()


def indexed(monkeypatch: pytest.MonkeyPatch) -> Detector:
    """A detector whose rules are indexed and sampled."""
    index_from(monkeypatch, 0)
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 2)
    detector = Detector()
    for number in range(4):
        detector.add_rule(str(number), f"kind == {number} and per user count(kind == {number}) >= 2")
    detector.add_rule("always", "not kind == 7")
    detector.submit_clean([({"kind": number % 8 // 2, "user": "ada"}, number, None) for number in range(80)])
    return detector


def test_costs_are_those_of_before(monkeypatch):
    detector = indexed(monkeypatch)
    before = figures_of(detector)
    assert len(before.memory_ns) == 4
    body = b"".join(detector_snapshot.pieces(detector_snapshot.take_snapshot(detector)))
    loaded = detector_snapshot.detector_from(body, detector_snapshot.SNAPSHOT_VERSION)
    assert figures_of(loaded) == before
    assert overview(loaded)["samples"] == 40
    for priority in range(1, 6):
        assert loaded.rule_set.time_ns(priority) == detector.rule_set.time_ns(priority)


def test_a_dump_has_no_figures_so_that_equal_states_have_equal_dumps(monkeypatch):
    detector = indexed(monkeypatch)
    loaded = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert not loaded.verdicts.counts()
    restore_figures(loaded, figures_of(detector))
    assert loaded.verdicts.counts() == detector.verdicts.counts()
    assert "figures" not in saved.unpack(detector.dump())
