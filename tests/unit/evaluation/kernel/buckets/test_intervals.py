"""Ranges of numbers and texts: exactly the intervals that contain a number are found."""

import itertools
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.kernel.buckets import ranges
from engine.evaluation.kernel.buckets.buckets import Row, SelectedRows
from engine.evaluation.kernel.buckets.intervals import Intervals
from engine.evaluation.kernel.buckets.ranges import Ranges
from engine.evaluation.kernel.buckets.triggers import Range
from engine.language.condition import Leaf
from engine.language.operators import LARGEST
from tests.differential.modes import index_from
from tests.worlds.ranges import NUMBERS, TEXTS, TEXTS_OF_RULES


def test_ranges_that_come_and_go_select_their_members_whether_they_are_few_or_many(seed: int) -> None:
    drawn = random.Random(seed)
    of_fact = Ranges(SelectedRows(lambda *_, **__: Row(_never, [], [])))
    there = dict[int, tuple[list[Range], tuple[int, bool]]]()
    sizes = set()
    for number in range(3_000):
        # Waves, so that few become many and many become few.
        if there and drawn.random() < (0.2 if number // 150 % 2 else 0.8):
            member = drawn.choice(list(there))
            triggers, place = there.pop(member)
            of_fact.remove(triggers, member, place)
        else:
            values = drawn.choice((range(-20, 20), "abcdefgh"))
            ends = {tuple(sorted(drawn.choices(values, k=2))) for _ in range(drawn.randint(1, 2))}
            triggers = [Range("x", low, high) for low, high in ends]
            place = drawn.randrange(3), len(triggers) > 1
            there[number] = triggers, place
            of_fact.add(triggers, number, place)
        values = [
            drawn.choice((drawn.randrange(-20, 20), drawn.uniform(-20, 20), drawn.choice("abcdefgh"), None))
            for _ in range(drawn.choice((1, 1, 0, 2, 5)))
        ]
        # Another fact has selected something.
        found: dict[tuple[int, bool], list[Any]] = {(0, False): [(-1, None)]}
        if len(values) == 1:
            of_fact.select(values[0], found)
        else:
            of_fact.select_any(values, found)
        expected: dict[tuple[int, bool], set[int]] = {(0, False): {-1}}
        for member, (triggers, place) in there.items():
            if any(_contains(each, value) for each in triggers for value in values):
                expected.setdefault(place, set()).add(member)
        assert {place: {row[-2] for row in rows} for place, rows in found.items() if rows} == expected
        assert all(len(rows) <= 4 * len(there) + 1 for rows in found.values())
        assert bool(of_fact) is bool(there)
        sizes.add(len(there))
    assert min(sizes) == 0
    assert max(sizes) > 3 * ranges.FEW_MAX


def _contains(range_: Range, value: Any) -> bool:
    alike = value is not None and isinstance(range_.low, str) is isinstance(value, str)
    return alike and range_.low <= value <= range_.high


def _never(*_: Any) -> None:
    raise AssertionError


def _evaluated(detector: Detector, **fields: object) -> int:
    """Return how many rules an event has evaluated."""
    met = detector.rule_set._members.index.met_by(fields, {})
    selected = sum(
        len(rows) for bucket in met for shapes in bucket.several.values() for rows in shapes.values()
    )
    of_loops = (loop for bucket in met for loop in bucket.groups.values())
    return selected + sum(len(rest) // (width or 1) for _, _, _, rest, width in of_loops)


@pytest.mark.slow
def test_an_event_evaluates_the_rules_whose_ranges_contain_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, 0)
    detector = Detector()
    for number in range(200):
        detector.add_rule("narrow", f"x between {number} and {number + 3} and not y == 1")
        detector.add_rule("threshold", f"z > {number}")
        detector.add_rule("both", f"v >= {number} and v < {number + 2} and not y == 1")
        detector.add_rule("text", f'name between "user {number:03}" and "user {number + 1:03}"')
    detector.evaluate({"x": 1, "z": 1, "v": 1, "name": ""}, 0)
    assert _evaluated(detector, x=100) == _evaluated(detector, x=100.0) == 4
    assert _evaluated(detector, x=100.5) == 3
    assert _evaluated(detector, z=7) == 8
    assert _evaluated(detector, v=100) == 3
    assert _evaluated(detector, name="user 100") == 2
    assert _evaluated(detector, name="user 0505") == 1
    for value in (True, None, "1", [1], LARGEST, -1):
        assert _evaluated(detector, x=value) == 0


@pytest.mark.parametrize("few_max", [0, 1_000], ids=["many", "few"])
@pytest.mark.parametrize("ends", [NUMBERS, TEXTS], ids=["numbers", "texts"])
def test_ranges_are_exact_wherever_they_end(
    ends: tuple[str | float, ...], few_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_from(monkeypatch, 0)
    monkeypatch.setattr(ranges, "FEW_MAX", few_max)
    detector = Detector()
    possible = [end for end in ends if -LARGEST <= end <= LARGEST] if ends is NUMBERS else TEXTS_OF_RULES
    rules = {
        detector.add_rule("range", Leaf("x", "between", (low, high))): (low, high)
        for low, high in itertools.combinations_with_replacement(sorted(possible), 2)
    }
    most = int(LARGEST)
    for value in (*ends, most - 1, 1 - most) if ends is NUMBERS else ends:
        fired = {action["ruleId"] for action in detector.evaluate({"x": value}, 0)}
        fits = ends is TEXTS or -LARGEST <= value <= LARGEST
        assert fired == {rule for rule, (low, high) in rules.items() if fits and low <= value <= high}, value


def test_that_a_value_is_in_one_range_decides_no_narrower_one(monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, 0)
    detector = Detector()
    detector.add_rule("hole", "x between 1 and 9 and not x between 3 and 5")
    detector.add_rule("below", "x between 1 and 9 and not (x between 3 and 20 or y == 1)")
    detector.add_rule("two kinds", 'x between 1 and 9 and not x between "a" and "z"')
    fired = {
        value: [action["name"] for action in detector.evaluate({"x": value}, 0)] for value in (0, 1, 4, 7, 12)
    }
    of_all = ["hole", "below", "two kinds"]
    assert fired == {0: [], 1: of_all, 4: ["two kinds"], 7: ["hole", "two kinds"], 12: []}


@pytest.mark.parametrize("few", [0, 1_000], ids=["indexed", "fused"])
def test_comparisons_are_exact_at_their_ends(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, few)
    detector = Detector()
    comparisons = {
        detector.add_rule("comparison", f"x {sign} {bound}"): (holds, bound)
        for sign, holds in ((">", operator.gt), (">=", operator.ge), ("<", operator.lt), ("<=", operator.le))
        for bound in (-3, 0, 1, 2.5, LARGEST, -LARGEST)
    }
    largest = int(LARGEST)
    for value in (-3, -2.9, -0.0, 0, 0.1, 1, 2, 2.5, 3, True, "3", None, [3], largest, LARGEST, -LARGEST):
        _check(detector, value, comparisons)
    for value in (largest - 1, largest + 1, -largest - 1, 10**400, -(10**400)):
        _check(detector, value, comparisons)


def _check(
    detector: Detector, value: object, comparisons: dict[str, tuple[Callable[[Any, Any], bool], float]]
) -> None:
    fired = {action["ruleId"] for action in detector.evaluate({"x": value}, 0)}
    expected = {
        rule_id
        for rule_id, (holds, bound) in comparisons.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
        if -LARGEST <= value <= LARGEST and holds(value, bound)
    }
    assert fired == expected, value


def test_of_an_equality_and_a_range_the_one_decides_that_fewer_events_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index_from(monkeypatch, 0)
    detector = Detector()
    drawn = random.Random(1)
    for number in range(200):
        low = drawn.randrange(900)
        detector.add_rule("rule", f'type == "t{number % 50}" and amount between {low} and {low + 100}')
        low *= 1_000
        detector.add_rule("rule", f'kind == "t{number % 3}" and size between {low} and {low + 100}')
    evaluated = [_evaluated(detector, type="t7", amount=amount) for amount in range(0, 1_000, 100)]
    assert max(evaluated) < 40
    evaluated = [_evaluated(detector, kind="t1", size=size) for size in range(0, 900_000, 100_000)]
    assert max(evaluated) < 40


def test_a_large_place_is_kept_as_bytes_whose_hash_nobody_can_predict() -> None:
    def places(low: int, high: int) -> list[int | bytes]:
        made = Intervals(64)
        made.add(low, high, (1, None))
        return [place for nodes in made._levels.values() for place in nodes]

    # A border has twice the number of the cell that it begins.
    edge = 1 << 60
    assert places(edge - 1, edge) == [edge]
    assert places(edge + 1, edge + 2) == [(edge + 2).to_bytes(9)]
    assert [type(place) for place in places(1 << 63, 1 << 63)] == [bytes]


@pytest.mark.parametrize(("inside", "fires"), [("1 and 3", [1, 2, 3]), ("3 and 9", [3, 4, 5])])
def test_the_range_that_selects_a_rule_decides_no_narrower_one(
    inside: str, fires: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    index_from(monkeypatch, 0)
    detector = Detector()
    detector.add_rule("rule", f"x between 1 and 5 and (x between {inside} or y == 1)")
    assert [x for x in range(8) if detector.evaluate({"x": x}, x)] == fires


@pytest.mark.parametrize("few", [0, 16])
@pytest.mark.parametrize("fused_up_to", [0, 10], ids=["indexed", "fused"])
def test_the_largest_integers_that_are_doubles_are_in_open_ranges(
    few: int, fused_up_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "FEW_MAX", few)
    index_from(monkeypatch, fused_up_to)
    detector = Detector()
    for rule in ("a <= 5", "a >= 5"):
        detector.add_rule(rule, rule)
    most = int(LARGEST)
    fired = [detector.evaluate({"a": value}, 0) for value in (-most - 1, -most, most, most + 1)]
    assert [[action["name"] for action in each] for each in fired] == [[], ["a <= 5"], ["a >= 5"], []]
