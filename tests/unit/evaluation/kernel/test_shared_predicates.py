"""Rules that are compiled into one function decide the short predicates that they share once an event."""

import json

import pytest

from engine import Detector


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
def test_a_short_predicate_of_three_rules_is_decided_once_an_event(rules: list[str], times: int) -> None:
    assert comparisons(rules) == times


@pytest.mark.parametrize("op", ["in", "nin"])
@pytest.mark.parametrize("count", [63, 64, 65, 154])
def test_one_of_many_numbers_is_found_whatever_their_size_and_type(op: str, count: int) -> None:
    numbers = [*range(-40, 40), *(1 << power for power in range(10, 80)), 2.0**70 * 3, 70_000.5, 0.1, 1e300]
    numbers = numbers[-count:]
    detector = Detector()
    detector.add_rule("r", json.dumps({"leaf": {"fact": "x", "op": op, "value": numbers}}))
    others = [-41, 1.5, (1 << 70) + 1, 70_001, 70_000.25, 0.3, 1e299]
    for value in (*numbers, *map(float, numbers), *others):
        outcome = detector.submit({"x": value}, 0)
        assert bool(outcome.actions) is (any(value == each for each in numbers) is (op == "in")), value
    for value in (True, "1", [1], None):
        assert bool(detector.submit({"x": value}, 0).actions) is (op == "nin" and value is not None)
