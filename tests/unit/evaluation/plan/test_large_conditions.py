"""Conditions at the limits of size and depth."""

import pytest

from engine import Detector
from engine.evaluation.plan.ir import Abstraction
from engine.evaluation.requirements import requirements_of
from engine.evaluation.kernel.selection.triggers import Analysis
from engine.language.condition import Any, Condition, FactArg, InRelation, Leaf, OnceWithin, SinceWithin


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


@pytest.mark.parametrize("others", [0, 40], ids=["streamed", "indexed"])
def test_a_relation_may_have_many_arguments(others):
    args = ["x", {"fact": "a"}, 1, {"fact": "$b"}, True, {"fact": "c.d"}] * 5
    detector = Detector()
    for number in range(others):
        detector.add_rule("other", f"z == {number}")
    detector.add_rule("r", {"in_relation": {"relation": "r", "args": args}})
    fields, row = {"a": 2, "c": {"d": "y"}}, ["x", 2, 1, 3, True, "y"] * 5
    sent = {"b": 3, "r": [row, row[::-1]]}
    assert len(detector.evaluate(fields, 0, sent)) == 1
    assert detector.evaluate(fields | {"a": 3}, 0, sent) == []
    assert detector.evaluate({"a": 2}, 0, sent) == []
    assert detector.evaluate(fields, 0, sent | {"r": [row[1:], [*row[:-1], "z"]]}) == []


def test_code_names_no_more_than_a_few_arguments_of_a_relation():
    parts = Abstraction(lambda fact, pattern: pytest.fail(f"{fact} {pattern}"))
    parts.shape(InRelation("r", (*range(10_000), *(FactArg(f"f{n}") for n in range(5_000)))), 0, {})
    assert len(parts.constants) == 2
    assert parts.facts == ()


@pytest.mark.parametrize(
    "wrapped", [lambda inner: OnceWithin(inner, 1), lambda inner: SinceWithin(inner, inner, 1)]
)
def test_triggers_are_found_by_one_look_at_each_part_however_deep_it_is(wrapped, monkeypatch):
    looks = []

    def counted(self, node, path, true=Analysis._true):
        looks.append(node)
        return true(self, node, path)

    monkeypatch.setattr(Analysis, "_true", counted)
    nested: Condition = Any(tuple(Leaf(f"f{number}", "eq", number) for number in range(100)))
    for _ in range(9):
        nested = wrapped(nested)
    analysis = Analysis(0, len)
    memories = dict.fromkeys(requirements_of(nested).memories)
    assert all(len(analysis.of_memory(*memory) or ()) > 100 for memory in list(memories)[:-1])
    assert len(analysis.of_rule(nested) or ()) == 109
    assert len(looks) == 110
