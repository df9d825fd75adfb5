"""The actor: one detector at a time, batches in order, no answer from a state that is half of one event."""

import json
from typing import Any

import pytest

from engine.evaluation.events import Done, Refused
from engine.evaluation.saved import STATE_VERSION
from engine.language.limits import DEFAULT_LIMITS
from engine.runtime import actor as actor_module
from engine.runtime import operations as ops
from engine.runtime.actor import Activated, DetectorActor
from engine.runtime.operations import Operation
from snapshots.errors import Fenced, NewerFormat, StorageError
from tests.faults import FaultyFiles

ONE = "1" * 32
TWO = "2" * 32


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def make(tmp_path, clock, files):
    def make() -> DetectorActor:
        return DetectorActor(
            tmp_path,
            DEFAULT_LIMITS,
            2,
            files=files,
            now_us=lambda: 10_000_000_000,
            monotonic_s=clock,
        )

    return make


@pytest.fixture
def actor(make):
    actor = make()
    actor.activate(ONE, 1)
    return actor


def event(timestamp_ms: float = 1000, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


def answer(actor: DetectorActor, operation: Operation) -> Any:
    (given,) = actor.handle([operation]).answers
    assert isinstance(given, Done), given
    return json.loads(given.result)


def codes(given: Any) -> list[int]:
    assert isinstance(given, Refused), given
    return [entry.code for entry in given.entries]


def add(actor: DetectorActor, condition: str = "a == 1") -> str:
    return str(answer(actor, ops.add_rule("a rule", condition))["id"])


def fired(actor: DetectorActor, timestamp_ms: float = 1000, **fields: Any) -> list[str]:
    return [action["ruleId"] for action in answer(actor, event(timestamp_ms, **fields))["actions"]]


def test_a_rule_is_shown_as_the_interface_has_it(actor):
    rule_id = add(actor, "once within 5m a == 1")
    expected = {
        "id": rule_id,
        "condition": {
            "once_within": {"inner": {"leaf": {"fact": "a", "op": "eq", "value": 1}}, "window_secs": 300}
        },
        "detectorId": ONE,
        "enabled": True,
        "name": "a rule",
        "notify": False,
        "priority": 1,
    }
    assert answer(actor, ops.rule(rule_id)) == expected
    assert answer(actor, ops.rules()) == {"rules": [expected]}
    assert answer(actor, ops.change_rule(rule_id)) == expected


def test_integers_of_any_size_stand_in_a_rule_as_they_were_given(actor):
    huge = "9" * 4000
    rule_id = add(actor, f"a == {huge} or b == 1.0")
    (given,) = actor.handle([ops.rule(rule_id)]).answers
    assert f'"value":{huge}}}'.encode() in given.result
    assert b'"value":1.0}' in given.result


def test_a_rule_is_changed_and_removed(actor):
    rule_id = add(actor)
    changed = answer(
        actor, ops.change_rule(rule_id, name="new", condition="a == 2", notify=True, enabled=False)
    )
    assert (changed["name"], changed["notify"], changed["enabled"]) == ("new", True, False)
    assert changed["condition"] == {"leaf": {"fact": "a", "op": "eq", "value": 2}}
    assert answer(actor, ops.remove_rule(rule_id)) == {"id": rule_id}
    assert answer(actor, ops.rules()) == {"rules": []}


@pytest.mark.parametrize(
    "operation", [ops.rule("0" * 32), ops.change_rule("0" * 32), ops.remove_rule("none")]
)
def test_an_unknown_rule_is_1201(actor, operation):
    assert codes(actor.handle([operation]).answers[0]) == [1201]


def test_an_unknown_rule_is_judged_before_the_condition_for_it(actor):
    assert codes(actor.handle([ops.change_rule("none", condition="not a condition")]).answers[0]) == [1201]


def test_a_batch_goes_on_after_an_operation_that_is_refused(actor):
    rule_id = add(actor)
    reply = actor.handle([event(a=1), ops.evaluate(b"{"), event(2000, a=1), ops.rule("none"), ops.rules()])
    assert reply.crash is None
    assert [type(one) for one in reply.answers] == [Done, Refused, Done, Refused, Done]
    assert codes(reply.answers[1]) == [1000]
    assert [rule_id] == fired(actor, 3000, a=1)


def test_a_batch_is_carried_out_in_order(actor):
    add(actor, "once a == 1")
    reply = actor.handle([event(1000, a=2), event(2000, a=1), event(3000, a=2)])
    assert [len(json.loads(one.result)["actions"]) for one in reply.answers] == [0, 1, 1]


def test_what_was_saved_is_there_when_the_detector_wakes_again(make, actor):
    rule_id = add(actor, "once within 10s a == 1")
    fired(actor, 1000, a=1)
    assert actor.passivate() > 1_000_000
    other = make()
    assert other.activate(ONE, 2) == Activated()
    assert fired(other, 11_000, a=2) == [rule_id]
    assert fired(other, 11_001, a=2) == []


def test_an_actor_hosts_one_detector_after_another(make, actor):
    rule_id = add(actor)
    actor.passivate()
    actor.activate(TWO, 2)
    assert answer(actor, ops.rules()) == {"rules": []}
    actor.passivate()
    actor.activate(ONE, 3)
    assert fired(actor, a=1) == [rule_id]


def test_what_was_discarded_is_not_saved(make, actor):
    add(actor)
    actor.passivate()
    actor.activate(ONE, 2)
    add(actor)
    fired(actor, 5000, a=1)
    actor.discard()
    assert actor.health().detector_id is None
    actor.activate(ONE, 3)
    assert fired(actor, 1000, a=1), "the clock was not moved"


def test_a_state_that_a_crash_left_behind_never_answers(actor, monkeypatch):
    def crash(detector, body):
        if b"crash" in body:
            detector.clock_us = 999_999_999
            raise RuntimeError("an engine that breaks")
        return evaluate_body(detector, body)

    evaluate_body = actor_module.evaluate_body
    monkeypatch.setattr(actor_module, "evaluate_body", crash)
    reply = actor.handle([event(a=1), event(crash=1), event(a=2)])
    assert len(reply.answers) == 1
    assert reply.crash is not None
    assert "an engine that breaks" in reply.crash.detail
    assert len(reply.crash.reference) == 12
    with pytest.raises(AssertionError):
        actor.handle([event(a=3)])
    with pytest.raises(AssertionError):
        actor.save()


def test_nothing_is_saved_while_nothing_has_changed(actor, files):
    actor.save()
    actor.handle([ops.rules(), ops.rule("none")])
    actor.save()
    assert "rename" not in files.calls
    fired(actor, a=1)
    actor.save()
    actor.save()
    assert files.calls.count("rename") == 1


def test_a_change_of_rules_is_on_the_disk_before_it_is_answered(make, actor):
    rule_id = add(actor)
    other = make()
    other.activate(ONE, 2)
    assert answer(other, ops.rule(rule_id))["id"] == rule_id


def test_a_flood_of_changes_is_saved_for_no_more_than_half_of_the_time(actor, files, clock, monkeypatch):
    def slow_rename(old, new):
        clock.now_s += 3.0
        type(files).rename(files, old, new)

    monkeypatch.setattr(files, "rename", slow_rename)
    saves = []
    for _ in range(10):
        before = files.calls.count("rename")
        add(actor)
        saves.append(files.calls.count("rename") - before)
        clock.now_s += 1.0
    assert saves == [1, 0, 0, 1, 0, 0, 1, 0, 0, 1]


def test_a_change_of_rules_stands_though_the_disk_is_full(actor, files):
    files.fails_at = len(files.calls)
    files.for_good = True
    rule_id = add(actor)
    assert fired(actor, a=1) == [rule_id]
    with pytest.raises(StorageError):
        actor.save()
    with pytest.raises(StorageError):
        actor.passivate()
    files.fails_at = None
    assert fired(actor, a=1) == [rule_id], "it is still awake"
    actor.passivate()


def test_an_actor_whose_detector_has_a_later_owner_cannot_save(make, actor):
    fired(actor, a=1)
    other = make()
    other.activate(ONE, 2)
    fired(other, a=1)
    other.save()
    fired(actor, 2000, a=1)
    with pytest.raises(Fenced):
        actor.save()


def test_damage_is_told_when_the_detector_wakes(make, actor, tmp_path):
    add(actor)
    add(actor)
    newest = max((tmp_path / "detectors" / ONE).iterdir())
    newest.write_bytes(b"")
    other = make()
    (damage,) = other.activate(ONE, 2).damage
    assert newest.name in damage
    assert len(answer(other, ops.rules())["rules"]) == 1


def test_a_detector_without_a_usable_snapshot_does_not_wake_and_the_actor_can_host_another(
    make, actor, tmp_path
):
    add(actor)
    for path in (tmp_path / "detectors" / ONE).iterdir():
        path.write_bytes(b"")
    other = make()
    with pytest.raises(StorageError, match="no snapshot that can be used"):
        other.activate(ONE, 2)
    other.activate(TWO, 3)
    assert other.health().detector_id == TWO


def test_an_event_too_far_ahead_of_the_clock_is_refused(actor):
    assert codes(actor.handle([event(10_060_001)]).answers[0]) == [1402]
    assert fired(actor, 10_060_000) == []


def test_a_detector_that_a_newer_program_saved_does_not_wake(make, actor, monkeypatch):
    monkeypatch.setattr("engine.runtime.actor.STATE_VERSION", STATE_VERSION + 1)
    add(actor)
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match=f"version {STATE_VERSION + 1}"):
        make().activate(ONE, 2)
