"""Rules of different births come to read one memory, at the same event in every life of a detector.

It costs no event much, and what none of them reads any more is gone.
"""

from array import array
from dataclasses import replace

import pytest

from engine import Detector, Limits
from engine.evaluation.dispatch import rule_set
from engine.evaluation.dispatch.indexing.buckets import Group
from engine.evaluation.state import eviction
from engine.language.condition import Condition, Keyed
from tests.differential import fused
from tests.differential.modes import in_mode
from tests.worlds.evictions import AWAITED, CLOCKED

ONE = "per k once within 10s p == 1"
APART = "per k historically for 10s not p == 1"


@pytest.fixture(autouse=True)
def _indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(0))


def test_memories_join_older_ones_without_a_look_at_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector(limits=replace(Limits(), keys_max=100))
    detector.add_rule("old", ONE)
    for key in range(96):
        detector.evaluate({"k": key, "p": 1}, 0)
    assert detector.state.tracking
    detector.add_rule("young", ONE)
    looked_at: list[int] = []
    monkeypatch.setattr(eviction, "page_until_us", lambda _, number: looked_at.append(number))
    detector.evaluate({"k": 1}, 1)
    assert detector.state.joined
    assert not looked_at


def test_an_event_has_few_of_many_memories_join_older_ones() -> None:
    detector = Detector()
    for _ in range(2):
        for number in range(40):
            detector.add_rule("rule", f"once within 10s p == {number}")
        detector.evaluate({"p": 1}, detector.events_seen)
    joined = [len(detector.state.joined)]
    for _ in range(3):
        detector.evaluate({"p": 1}, detector.events_seen)
        joined.append(len(detector.state.joined))
    assert joined == [16, 32, 40, 40]


def test_memories_join_older_ones_at_the_same_event_after_a_reload() -> None:
    first, second = Detector(), Detector()
    joined = []
    for place, time_ms in enumerate(
        (0, 0, 3_000, 3_000, 3_001, 9_999, 10_000, 10_001, 13_000, 13_001, 13_002)
    ):
        for text in (ONE, APART, "per k once p == 1"):
            for life in (first, second) if place < 8 else ():
                life.add_rule("rule", text, rule_id=f"{place} {text}")
        second = Detector.load(second.dump(), Detector.STATE_VERSION)
        for life in (first, second):
            life.evaluate({"k": place, "p": place % 2}, time_ms)
        second = Detector.load(second.dump(), Detector.STATE_VERSION)
        assert first.state.joined == second.state.joined
        assert first.state.bytes == second.state.bytes
        joined.append(len(first.state.joined))
    assert joined == sorted(joined)
    assert joined[-1] > joined[-4] > 0


def test_what_has_gone_does_not_wait_to_join() -> None:
    detector = Detector()
    detector.add_rule("old", "once within 1000000s p == 1")
    for _ in range(200):
        rule_id = detector.add_rule("young", "once within 1000000s p == 1")
        detector.evaluate({"p": 1}, 0)
        detector.remove_rule(rule_id)
        assert len(detector.rule_set.joins.waiting) < 25
    rule_id = detector.add_rule("young", "once within 1000000s p == 1")
    detector.evaluate({"p": 1}, 0)
    for _ in range(200):
        detector.remove_rule(detector.add_rule("younger", "once within 1000000s p == 1"))
    assert not detector.rule_set.joins.newborn
    detector.evaluate({}, 1_000_000_000)
    assert not detector.state.joined
    detector.evaluate({}, 1_000_000_001)
    assert len(detector.state.joined) == 1


@pytest.mark.parametrize("history", AWAITED + CLOCKED, ids=repr)
def test_keys_that_only_a_removed_rule_remembered_are_not_live(history: Condition) -> None:
    detector = Detector()
    condition = Keyed(history, "k")
    ids = []
    for number in range(4):
        ids.append(detector.add_rule("rule", condition))
        for p in (0, 1):
            for q in (0, 1):
                detector.evaluate({"k": f"{number} {p} {q}", "p": p, "q": q}, number + 1)
    alone = Detector()
    alone.add_rule("rule", condition)
    for p in (0, 1):
        for q in (0, 1):
            alone.evaluate({"k": f"3 {p} {q}", "p": p, "q": q}, 4)
    for place in (1, 0, 2):
        detector.remove_rule(ids[place])
    # A key that comes is live for what any event changes, until it is seen that it need not be.
    assert 0 < detector.state.live <= alone.state.live
    assert 0 < detector.state.bytes <= alone.state.bytes
    detector.remove_rule(ids[3])
    assert (detector.state.live, detector.state.bytes, detector.state.readers) == (0, 0, {})


def test_rows_are_taken_over_in_place() -> None:
    rules = Group(2, 1)
    rules.add([1, "a"], [1])
    for number in range(2, 5):
        other = Group(2, 1)
        other.add([number, "b"], [number])
        texts = rules.constants[1]
        rules.take_over(other)
        assert rules.constants[1] is texts
    odd = Group(2, 1)
    odd.add([1.5, "c"], [5])
    rules.take_over(odd)
    assert rules.constants == [[1, 2, 3, 4, 1.5], ["a", "b", "b", "b", "c"]]
    assert rules.rest == [1, 2, 3, 4, 5]
    assert odd.constants[0] == array("d", [1.5])


def test_a_memory_that_waits_to_join_keeps_what_the_others_ignore() -> None:
    rule = "per k (q == 1 since within 1s p == 1)"
    with in_mode("indexed"):
        made = Detector()
        oldest = made.add_rule("oldest", rule)
        made.evaluate({"k": 2}, 600)
        made.add_rule("waits", rule)
        # At the very time of its birth: it joins when its window has passed.
        made.evaluate({"k": 2}, 600)
        made.evaluate({"k": 1, "p": 1}, 1_500)
        made.add_rule("joins", rule)
        made.evaluate({"k": 2}, 1_501)
        made.remove_rule(oldest)
        assert [action["name"] for action in made.evaluate({"k": 1, "q": 1}, 1_800)] == ["waits"]
