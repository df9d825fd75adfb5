"""Conditions at the limits of size and depth."""

import pytest

from engine import Detector


@pytest.mark.parametrize("width", [199, pytest.param(999, marks=pytest.mark.storm)])
def test_large_and_deep_conditions_within_the_limits_can_be_evaluated(width):
    detector = Detector()
    deep = {"leaf": {"fact": "a", "op": "eq", "value": 1}}
    for level in range(63):
        deep = [
            {"not": deep},
            {"keyed": {"inner": deep, "key": "k"}},
            {"all": [deep]},
            {"once": deep},
            {"any": [deep]},
        ][level % 5]
    wide = {"all": [{"once": {"leaf": {"fact": f"f{n}", "op": "neq", "value": n}}} for n in range(width)]}
    keys = {"leaf": {"fact": "a", "op": "eq", "value": 1}}
    for level in range(31):
        keys = {"keyed": {"inner": {"once": keys}, "key": f"k{level}"}}
    for name, condition in (("deep", deep), ("wide", wide), ("keys", keys)):
        detector.add_rule(name=name, condition=condition)
    fields = {"a": 1, "k": 1, **{f"f{n}": -1 for n in range(width)}, **{f"k{n}": n for n in range(31)}}
    assert {action["name"] for action in detector.evaluate(fields, 0)} >= {"wide", "keys"}
