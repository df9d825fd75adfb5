"""Rules share what they remember, whenever they were made, and each sees what came after its birth alone."""

import pytest

from engine import Detector, Limits, parse
from engine.language.condition import Condition, Keyed
from tests.differential.modes import in_mode
from tests.worlds.evictions import AWAITED, CLOCKED

MODES = pytest.mark.parametrize("mode", ["fused", "indexed"])


def born_apart(rule: str | Condition, births: int = 2) -> Detector:
    """Return a detector with equal rules, each of which sees the events after it alone."""
    detector = Detector()
    for number in range(births):
        detector.add_rule(f"{number}", rule, rule_id=f"{number:032x}")
        detector.evaluate({"k": 1, "w": 1}, 0)
    return detector


@pytest.mark.parametrize(
    ("rule", "memories"),
    [
        ("once p == 1", 1),
        ("per k once within 1s p == 1", 1),
        ("historically for 1s p == 1", 1),
        ("q == 1 since p == 1", 1),
        ("per k previous p == 1", 1),
        ("count(p == 1) >= 2", 1),
        ("per k distinct(v) within 1h > 2", 1),
        ("per k where w == 1 once p == 1", 1),
        # What these remember depends on the birth.
        ("per k historically for 1s strong p == 1", 2),
        ("sum(v) > 2", 2),
        ("avg(v) within 1h > 2", 2),
        ("per k where earlier w == 1 once p == 1", 3),
        ("once (q == 1 and once p == 1)", 3),
    ],
)
def test_rules_of_two_births_share_memories_that_are_the_same_for_both(rule: str, memories: int) -> None:
    detector = born_apart(rule)
    assert len(detector.histories.memories) == memories
    uses = detector.rule_set.uses
    assert sum(uses.values()) == 2 * (2 if memories == 3 else 1)
    for number in range(2):
        detector.remove_rule(f"{number:032x}")
    assert (detector.histories.memories, detector.histories.slices, uses) == ({}, {}, {})


def test_all_operators_that_look_for_the_latest_of_the_same_events_share_one_memory() -> None:
    detector = Detector()
    for number, rule in enumerate(
        (
            "once not p == 1",
            "once within 1s not p == 1",
            "earlier not p == 1",
            "earlier within 5s not p == 1",
            "previous not p == 1",
            "historically p == 1",
            "historically for 3s p == 1",
        )
    ):
        detector.add_rule(f"{number}", f"per k ({rule})")
    [remembered] = detector.histories.memories.values()
    assert detector.rule_set.uses == {remembered: 7}


@pytest.mark.parametrize("history", AWAITED + CLOCKED, ids=repr)
def test_keys_that_only_a_removed_rule_remembered_make_room(history: Condition) -> None:
    detector = Detector(limits=Limits(keys_max=40))
    rule = Keyed(history, "k")
    old = detector.add_rule("old", rule)

    def events(name: str) -> int:
        """Return how many keys were evicted when ten new ones with state came."""
        before = detector.keys_evicted
        for number in range(10):
            for p, q in ((0, 0), (1, 0)):
                detector.evaluate({"k": f"{name} {number} {p}", "p": p, "q": q}, 1)
        return detector.keys_evicted - before

    assert events("old") == 0
    kept = detector.histories.live
    detector.add_rule("young", rule)
    assert events("young") == 0
    detector.remove_rule(old)
    assert events("new") == 0
    assert 0 < kept <= detector.histories.live <= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "member",
    ["once within 10s p == {}", "(count(p == {}) within 10s >= 3)", "historically for 10s not p == {}"],
)
def test_the_state_of_many_rules_that_share_memories_is_that_of_a_rule_for_each(member: str) -> None:
    def state_bytes(rules: int) -> int:
        detector = Detector()
        for number in range(100):
            if number < rules:
                detector.add_rule("rule", f"q == {number} and per k {member.format(number % 8)}")
            detector.evaluate({"k": "first", "p": number % 8}, 20_000 * number)
        for number in range(400):
            detector.evaluate({"k": number % 50, "p": number % 8}, 8_000_000 + number)
        return detector.histories.bytes

    assert state_bytes(40) == state_bytes(8) > 0


@MODES
def test_a_memory_of_many_and_one_that_comes_when_there_are_many_slices_are_kept_apart(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such entries have no place in the lists of slices."""
    monkeypatch.setattr("engine.evaluation.slices.slices.EXTENDED_MAX", 10)
    with in_mode(mode):
        detector = Detector()
        detector.add_rule("first", "per k once p == 0")
        detector.evaluate_many([({"k": key, "p": 0}, 0, None) for key in range(20)])
        for number in range(1, 40):
            detector.add_rule(f"{number}", f"per k count(p == {number}) >= 2")
    [slices] = detector.histories.slices.values()
    assert [one.has_place for one in slices.memories.values()] == [True] + [False] * 39
    events = [({"k": key, "p": key}, 1, None) for key in (7, 8, 7)]
    assert [[rule.name for rule in fired] for fired in detector.evaluate_many(events)] == [
        ["first"],
        ["first"],
        ["first", "7"],
    ]
    assert parse("count(p == 7) >= 2") in [one.node for one, _ in slices.held_in(slices.shards[7][7])]
