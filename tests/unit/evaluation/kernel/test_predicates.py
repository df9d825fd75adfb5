"""Predicates over values of all types, judged by the reference."""

from itertools import product
from typing import Any

import pytest

from engine import Detector
from engine.language.condition import All, Condition, FactArg, InRelation, Leaf, Ref
from engine.language.operators import LARGEST
from tests.differential.modes import in_mode
from tests.reference import Event, verdict

ENDS = (0, 1, 2, 1.5, True, "a", LARGEST, -LARGEST, -1)
RANGES = (
    (1, LARGEST),
    (-LARGEST, 1),
    (1, 2),
    (0, LARGEST),
    (-LARGEST, LARGEST),
    (LARGEST, LARGEST),
    (1, 10**400),
    (-(10**400), 1),
    ("a", "b"),
)
SCALARS = (0, 1, 2, -0.0, 1.5, True, False, "", "a", "ab")
VALUES = (
    *(None, True, False, 0, -0.0, 1, 1.0, 2, -1, 1.5, 10**30, 10**400, -(10**400), LARGEST, -LARGEST),
    *("", "a", "ab", "b", "c", [], [1], [True, "a"], ["a", ["a"]], [[]], {}, {"a": 1}, {"a": True}),
)
OTHERS = (None, 1, True, "a", [1, "a"], [[]], {"a": 1.0})

PREDICATES: tuple[Condition, ...] = (
    # With the end left out, a range is open, as that of `x > 1`, if both are about one fact.
    *(
        All((Leaf("x", "between", range_), Leaf(other, "neq", end)))
        for range_, other, end in product(RANGES, "xy", ENDS)
    ),
    *(Leaf("x", "between", range_) for range_ in RANGES),
    *(Leaf("x", op, value) for op, value in product(("eq", "neq", "contains"), SCALARS)),
    *(Leaf("x", op, some) for op in ("in", "nin") for some in ((), (0, 1), (1.5,), ("a",), ("a", ""))),
    *(Ref("x", op, other) for op, other in product(("eq", "neq", "in", "nin"), "xy")),
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_predicates_agree_with_the_reference_on_values_of_all_types(mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        for number, condition in enumerate(PREDICATES):
            detector.add_rule(str(number), condition)
        for x, y in product(VALUES, OTHERS):
            fields: dict[str, Any] = {name: one for name, one in {"x": x, "y": y}.items() if one is not None}
            fired = {action["name"] for action in detector.evaluate(fields, 0)}
            history = [Event(0, fields, {})]
            for number, condition in enumerate(PREDICATES):
                assert (str(number) in fired) is verdict(condition, history), (condition, fields)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 40])
def test_a_relation_of_any_number_of_arguments_holds_for_their_values(count: int) -> None:
    args = tuple([(FactArg("x"), FactArg("$v"), "z")[number % 3] for number in range(count)])
    detector = Detector()
    detector.add_rule("rule", InRelation("r", args))
    row = [("x", "v", "z")[number % 3] for number in range(count)]
    for fields, sent, holds in (
        ({"x": "x"}, {"v": "v"}, True),
        ({"x": "x"}, {"v": "x"}, count == 1),
        ({"x": "v"}, {"v": "v"}, False),
        ({}, {"v": "v", "x": "x"}, False),
    ):
        assert bool(detector.evaluate(fields, 0, {**sent, "r": [["?"] * count, row]})) is holds


@pytest.mark.parametrize(
    ("condition", "fields"),
    [
        ('x contains "a" and (x == "a" or z == 1)', {"x": ["a", "b"]}),
        ('x contains "a" and (x == "a" or z == 1)', {"x": "ab"}),
        ("x contains 5 and (x == 5 or z == 1)", {"x": [5]}),
        ('x startswith "a" and (x == "a" or z == 1)', {"x": "ab"}),
        ('x in network "10.0.0.1" and (x == "10.0.0.1" or z == 1)', {"x": "::ffff:10.0.0.1"}),
    ],
)
def test_an_element_or_a_part_of_a_value_is_not_taken_for_the_value(
    condition: str, fields: dict[str, Any]
) -> None:
    with in_mode("indexed"):
        detector = Detector()
        detector.add_rule("rule", condition)
        assert detector.evaluate(fields, 0) == []
        assert detector.evaluate({**fields, "z": 1}, 0) != []
