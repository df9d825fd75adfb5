"""Rules are indexed where that was measured to cost less."""

from collections.abc import Callable

import pytest

from engine import Detector
from engine.evaluation.dispatch import rule_set
from tests.differential import fused

KEYS = ("user", "address", "card", "device", "city")
CHOICES: dict[str, tuple[int, Callable[[int], str], bool]] = {
    "counts under several keys": (
        100,
        lambda number: (
            f'per {KEYS[number % 5]} (count(kind == "k{number // 5}") within 1m >= {3 + number % 7})'
        ),
        False,
    ),
    "many counts under several keys": (
        200,
        lambda number: f'per {KEYS[number % 5]} (count(kind == "k{number // 5}") within 1m >= 3)',
        False,
    ),
    "still more counts under several keys": (
        300,
        lambda number: f'per {KEYS[number % 5]} (count(kind == "k{number // 5}") within 1m >= 3)',
        True,
    ),
    "counts of an event that most keys have had": (
        150,
        lambda number: f'per user (count(kind == "k") within {number + 1}m >= 3)',
        False,
    ),
    "counts under one key": (
        50,
        lambda number: f'per user (count(kind == "k{number}") within 1m >= 3)',
        False,
    ),
    "many counts under one key": (
        100,
        lambda number: f'per user (count(kind == "k{number}") within 1m >= 3)',
        True,
    ),
    "different values under one key": (
        100,
        lambda number: f'per user (distinct(city where kind == "k{number}") within 1m >= 3)',
        True,
    ),
    "sums under one key": (
        50,
        lambda number: f'per user (sum(amount where kind == "k{number}") within 1m > 3)',
        False,
    ),
    "many means under one key": (
        150,
        lambda number: f'per user (avg(amount where kind == "k{number}") within 1m > 3)',
        True,
    ),
    "sums under several keys": (
        300,
        lambda number: f'per {KEYS[number % 5]} (sum(amount where kind == "k{number // 5}") within 1m > 3)',
        False,
    ),
    "counts without keys": (300, lambda number: f'count(kind == "k{number}") within 1m >= 3', False),
    "sums without keys": (300, lambda number: f'sum(amount where kind == "k{number}") within 1m > 3', False),
    "counts in nested slices": (
        20,
        lambda number: f'per user (per address (count(kind == "k{number}") within 1m >= 3))',
        False,
    ),
    "memories that nearly every key holds": (
        100,
        lambda number: f'per {KEYS[number % 5]} once within 1m kind == "k{number // 5}"',
        False,
    ),
    "a memory that all rules share": (
        50,
        lambda number: f'kind == "k{number}" and amount > 1 and per user once within 1h country == "DE"',
        False,
    ),
    "many rules that share a memory": (
        120,
        lambda number: (
            f'kind == "k{number}" and per user ((not action == "logout") since within 1h action == "pay")'
        ),
        False,
    ),
    "memories behind an equality": (
        80,
        lambda number: f'action == "pay" and per user once within 10m kind == "k{number}"',
        False,
    ),
    "ranges": (200, lambda number: f"amount between {5 * number} and {5 * number + 10}", False),
    "many ranges": (800, lambda number: f"amount between {5 * number} and {5 * number + 10}", True),
    "many ranges that overlap": (
        800,
        lambda number: f"amount between {5 * number % 500} and {5 * number % 500 + 500}",
        False,
    ),
    "few histories that nearly every event breaks": (
        50,
        lambda number: f'kind == "k{number}" and historically for 5m load_{number} between 0 and 90',
        False,
    ),
    "histories that nearly every event breaks": (
        110,
        lambda number: f'kind == "k{number}" and historically for 5m load_{number} between 0 and 90',
        True,
    ),
    "histories of one fact that half of all events break": (
        120,
        lambda number: f'kind == "k{number}" and per user once within {number + 1}m not ok == true',
        False,
    ),
    "regular expressions": (10, lambda number: f'path matches "/dir{number}/[a-f]+x"', True),
}


@pytest.mark.parametrize(("count", "condition", "indexed"), CHOICES.values(), ids=CHOICES)
def test_rules_are_indexed_where_that_was_measured_to_cost_less(
    count: int, condition: Callable[[int], str], indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = Detector()
    # Only the last rule has all of them weighed.
    with monkeypatch.context() as patched:
        patched.setattr(rule_set, "index_pays", fused.up_to(count))
        for number in range(count - 1):
            detector.add_rule(f"rule {number}", condition(number))
    detector.add_rule("the last one", condition(count - 1))
    assert detector.state.indexed is indexed
    assert Detector.load(detector.dump(), Detector.STATE_VERSION).state.indexed is indexed
