"""Rules that are compiled into one function make the short tests that they share once for each event."""

from typing import Final, get_args

import pytest

from engine import Detector
from engine.evaluation.dispatch import rule_set
from engine.evaluation.dispatch.compilation.memory_access import EagerWriter, RowWriter
from engine.evaluation.plan.shapes import LOOKED_UP, Predicate, Test
from tests.differential import fused

LONG: Final = {*LOOKED_UP, "array", "matches", "related", "related by many", "true", "among none"}
"""Those that may walk through a value or search it, or need no variable."""


class Compared(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def comparisons(rules: list[str]) -> int:
    """Count how often one event's `action` is compared with a text."""
    detector = Detector()
    for rule in rules:
        detector.add_rule(rule, rule)
    Compared.times = 0
    fired = detector.submit_clean_one({"action": Compared("login"), "x": 2}, 0, None).fired
    assert [rule.name for rule in fired] == [rule for rule in rules if "x > 5" not in rule]
    return Compared.times


@pytest.mark.parametrize(
    ("rules", "times"),
    [
        (["action == 'login' and x > 1", "once within 1m action == 'login'", "action == 'login'"], 1),
        (["action == 'login' and x > 1", "x < 9 and action == 'login'"], 2),
        (["x > 5 and action == 'login'", "x > 5 and action == 'login'"], 0),
        (["action == 'login'", "action != 'logout'", "action != 'view'", "action == 'login' or x > 9"], 4),
    ],
)
def test_a_short_test_of_three_rules_is_made_once_an_event(
    rules: list[str], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(len(rules)))
    assert comparisons(rules) == times


@pytest.mark.parametrize("test", [*get_args(Test)])
def test_a_test_that_may_take_long_is_made_only_where_it_decides(test: Test) -> None:
    shapes = [Predicate(test, (0, 1), (0, 1), arguments=(True, False))] * 3
    writer = EagerWriter(shapes, [None, None], (), {}, {})
    verdicts = [writer.verdict(shape) for shape in shapes]
    is_short = test not in LONG
    assert writer.tests == ([f"p0 = {RowWriter((), {}).verdict(shapes[0])}"] if is_short else [])
    assert ("p0" in verdicts) == is_short
