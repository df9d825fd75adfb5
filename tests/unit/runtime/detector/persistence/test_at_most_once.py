"""What rules remember to act at most once survives in the journal, in snapshots and in forks."""

import json

import pytest

from engine.evaluation.wire.inspecting.states import StateAsked
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector.persistence.detector_snapshot import take_snapshot
from tests.property.looking.test_forks import opened
from tests.unit.runtime.detector.persistence.journaled import Journaled


def events(journaled: Journaled, *times_ms: int, **fields: object) -> list[int]:
    """Return how many actions were held back before each action at some events."""
    rows = [{"fields": {"a": 1, **fields}, "timestamp_ms": at_ms} for at_ms in times_ms]
    answer = journaled.take(ops.evaluate_batch(json.dumps({"events": rows}).encode()))
    results = json.loads(answer.result)["results"]
    return [action.get("suppressed", 0) for result in results for action in result["actions"]]


@pytest.mark.parametrize("saved", [False, True])
def test_a_replay_repeats_what_acts_and_goes_on(saved: bool) -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1", every_secs=0.6, every_by=["host"]))
    assert events(journaled, 0, 100, 200, host="a") == [0]
    if saved:
        journaled.save()
    assert events(journaled, 300, 700, 800, host="a") == [3]
    assert events(journaled, 800, 801, host=1) == [0]
    for each in (journaled.restored(), journaled):
        assert events(each, 900, 1_300, host="a") == [2]
        assert events(each, 1_400, host=1.0) == [1]


def test_what_was_held_back_is_counted_in_the_state_and_in_snapshots() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1", every_secs=600))
    events(journaled, 0, 1, 2)
    journaled.save()
    for each in (journaled, journaled.restored()):
        asked = StateAsked(about="rules", limit=10)
        [rule] = json.loads(each.take(ops.state(asked)).result)["rules"]
        assert (rule["times_true"], rule["held_back"]) == (1, 2)


def test_a_fork_goes_on_with_it() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1", every_secs=0.6, every_by=["host"]))
    events(journaled, 0, 100, host="a")
    fork = opened(take_snapshot(journaled.detector))
    assert fork.evaluate({"a": 1, "host": "a"}, 200) == []
    [action] = fork.evaluate({"a": 1, "host": "a"}, 600)
    assert action["suppressed"] == 2
