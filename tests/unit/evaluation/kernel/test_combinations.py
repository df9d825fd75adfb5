"""Rules that fire together come as one tuple, and a detector keeps few such tuples."""

import random

import pytest

from engine import Detector
from engine.evaluation.kernel import stream
from engine.evaluation.kernel.stream import Combinations, rules_of_bits
from tests.differential.modes import in_mode


@pytest.mark.parametrize("mode", ["indexed", "fused"])
def test_the_same_rules_are_one_tuple_in_order_of_priority(mode: str) -> None:
    detector = Detector()
    with in_mode(mode):
        for number in range(70):
            detector.add_rule(str(number), f"f{number} == 1")
    draw = random.Random(7)
    sets = [draw.sample(range(70), count) for count in (1, 2, 9, 64, 65, 70)]
    events = [({f"f{number}": 1 for number in chosen}, 0, None) for chosen in sets]
    once, again = detector.evaluate_many(events), detector.evaluate_many(events)
    for chosen, first, second in zip(sets, once, again, strict=True):
        assert [rule.name for rule in first] == [str(number) for number in sorted(chosen)]
        assert (first is second) == (len(chosen) <= 64)
    assert detector.evaluate_many([({}, 0, None)]) == [()]


def test_few_combinations_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEPT_MAX", 3)
    rules = Detector()
    made = [rules.rule(rules.add_rule(str(number), "a == 1")) for number in range(3)]
    found = Combinations[int](lambda bits: rules_of_bits(made, bits))
    for bits in range(8):
        assert [rule.name for rule in found[bits]] == [str(place) for place in range(3) if bits >> place & 1]
        assert found[bits] is found[bits]
        assert len(found) <= 3
    assert sorted(found) == [6, 7]


@pytest.mark.parametrize("mode", ["indexed", "fused"])
def test_rules_that_fired_together_before_come_under_their_new_names(mode: str) -> None:
    detector = Detector()
    ids = [detector.add_rule(name, "a == 1") for name in ("one", "other")]
    for name in ("one", "renamed"):
        with in_mode(mode):
            detector.change_rule(ids[0], name=name)
        assert [action["name"] for action in detector.evaluate({"a": 1}, 0)] == [name, "other"]
