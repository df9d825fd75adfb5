"""Conditions at the limits of size and depth."""

from typing import Any

import pytest

from engine import Detector
from tests.differential.modes import in_mode


@pytest.mark.parametrize("mode", ["fused", "indexed"])
@pytest.mark.parametrize("width", [199, pytest.param(999, marks=pytest.mark.storm)])
def test_large_and_deep_conditions_within_the_limits_can_be_evaluated(width: int, mode: str) -> None:
    detector = Detector()
    deep: Any = {"leaf": {"fact": "a", "op": "eq", "value": 1}}
    for level in range(63):
        deep = [
            {"not": deep},
            {"keyed": {"inner": deep, "key": "k"}},
            {"all": [deep]},
            {"once": deep},
            {"any": [deep]},
        ][level % 5]
    wide = {"all": [{"once": {"leaf": {"fact": f"f{n}", "op": "neq", "value": n}}} for n in range(width)]}
    keys: Any = {"leaf": {"fact": "a", "op": "eq", "value": 1}}
    for level in range(31):
        keys = {"keyed": {"inner": {"once": keys}, "key": f"k{level}"}}
    with in_mode(mode):
        for name, condition in (("deep", deep), ("wide", wide), ("keys", keys)):
            detector.add_rule(name=name, condition=condition)
    fields = {"a": 1, "k": 1, **{f"f{n}": -1 for n in range(width)}, **{f"k{n}": n for n in range(31)}}
    assert {action["name"] for action in detector.evaluate(fields, 0)} >= {"wide", "keys"}


@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_a_relation_may_have_many_arguments(mode: str) -> None:
    args = ["x", {"fact": "a"}, 1, {"fact": "$b"}, True, {"fact": "c.d"}] * 5
    detector = Detector()
    with in_mode(mode):
        detector.add_rule("r", {"in_relation": {"relation": "r", "args": args}})
    fields, row = {"a": 2, "c": {"d": "y"}}, ["x", 2, 1, 3, True, "y"] * 5
    sent = {"b": 3, "r": [row, row[::-1]]}
    assert len(detector.evaluate(fields, 0, sent)) == 1
    assert detector.evaluate(fields | {"a": 3}, 0, sent) == []
    assert detector.evaluate({"a": 2}, 0, sent) == []
    assert detector.evaluate(fields, 0, sent | {"r": [row[1:], [*row[:-1], "z"]]}) == []
