"""Triggers: an event that meets none need not be shown to the rule or memory."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import parse
from engine.evaluation.facts.look_up import fact_shown
from engine.evaluation.kernel.buckets.triggers import (
    PRESENT,
    Analysis,
    Beginning,
    Element,
    Ending,
    Found,
    Hit,
    Holding,
    InNetwork,
    Range,
    Related,
    Trigger,
    Triggers,
)
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Births, requirements_of
from engine.evaluation.slices.histories import Histories
from engine.evaluation.stamps import NEVER
from engine.language.condition import All, Condition, FactArg, InRelation, Leaf, Not, OnceWithin, SinceWithin
from engine.language.condition import Any as AnyOf


def said(found: Triggers | None) -> set[str] | None:
    """Return triggers in short: `a=1`, `a` for any value, `a:1..5`, `a~x`, `a/x/`, and what a memory does."""

    def short(trigger: Trigger) -> str:
        match trigger:
            case _ if not isinstance(trigger, Holding) and fact_shown(trigger.fact) != trigger.fact:
                return short(trigger._replace(fact=fact_shown(trigger.fact)))
            case Beginning(fact, text):
                return f"{fact}^{text}"
            case Ending(fact, text):
                return f"{fact}${text}"
            case InNetwork(fact, number):
                return f"{fact}@{number}"
            case Related(fact, relation):
                return f"{relation}({fact})"
            case Hit(fact, value):
                return fact if value is PRESENT else f"{fact}={value}"
            case Range(fact, low, high):
                return f"{fact}:{low}..{high}"
            case Element(fact, value):
                return f"{fact}~{value}"
            case Found(fact, pattern):
                return f"{fact}/{pattern}/"
            case Holding():
                return "holds"

    return None if found is None else set(map(short, found))


def analysis_of(condition: Condition) -> Analysis:
    """Return the analysis of a rule whose memories are those of a detector."""
    histories = Histories(1 << 40, 1 << 40)
    for use in requirements_of(condition, Births(7, NEVER)).memories:
        histories.acquire(use)
    return Analysis(histories, Births(7, NEVER), lambda choices: min(choices, key=cost))


def cost(found: Triggers) -> float:
    """Say that an event meets a value, or a memory that holds a time, more seldom than anything else."""
    seldom = (Hit, Holding)
    return sum(1 if isinstance(trigger, seldom) and PRESENT not in trigger else 5 for trigger in found)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("a == 1", {"a=1"}),
        ("a != 1", {"a"}),
        ("a == [1]", {"a"}),
        ("a in [1, 2]", {"a=1", "a=2"}),
        ("a not in [1, 2]", {"a"}),
        ("a matches 'x'", {"a~x"}),
        ("a matches 'x+'", {"a/x+/"}),
        ('a startswith "x"', {"a^x"}),
        ('a endswith "x"', {"a$x"}),
        ('a like "x"', {"a=x"}),
        ('a like "x*"', {"a^x"}),
        ('a icontains "x"', {"a/(?i)x/"}),
        ('a startswith ""', {"a"}),
        ('a in network ["0.0.0.0/0", "128.0.0.0/1"]', {"a@2", "a@5"}),
        ("a in network r", {"r(a)"}),
        ("some a (b == 1)", {"a[].b=1"}),
        ("some a (not b == 1)", {"a"}),
        ("some a ($v == 1 or b == 5)", {"$v=1", "a[].b=5"}),
        ("some a (some b (it == 1))", {"a[].b[].it=1"}),
        ("a contains 'x'", {"a~x"}),
        ("a contains ''", {"a"}),
        ("a between 1 and 5", {"a:1..5"}),
        ("a between 1 and 5 and a between 3 and 9", {"a:3..5"}),
        ("a between 1 and 5 and (b == 1 or c == 1 and a between 3 and 9)", {"b=1", "c=1"}),
        ("(a between 1 and 5 and b != 1) and a between 3 and 9", {"a:3..5"}),
        ("a between 1 and 3 and a between 3 and 9", {"a:3..3"}),
        ("a between 1 and 2 and a between 3 and 9", set()),
        ("a between 1 and 2 and a between 'x' and 'y'", set()),
        ("a between 1 and 2 and b between 'x' and 'y'", {"a:1..2"}),
        ("a == b", {"a"}),
        ("b != 1 and a == 1", {"a=1"}),
        ("a == 1 or b == 2", {"a=1", "b=2"}),
        ("a == 1 or not b == 2", None),
        ("not a == 1", None),
        ("not not a == 1", {"a=1"}),
        ("not (not a == 1 and not b == 1)", {"a=1", "b=1"}),
        ("not (b != 1 or not a == 1)", {"a=1"}),
        ("per k a == 1", {"a=1"}),
        ("per k not a == 1", {"k"}),
        ("per k where b == 1 (not a == 1)", {"b=1"}),
        ("per k where b != 1 a == 1", {"a=1"}),
        ("once a == 1", {"holds", "a=1"}),
        ("per k once a == 1", {"holds", "a=1"}),
        ("once within 1s a == 1", {"holds", "a=1"}),
        ("a == 1 since b == 1", {"holds", "b=1"}),
        ("a == 1 since within 1s b == 1", {"holds", "b=1"}),
        ("historically a == 1", {"a=1"}),
        ("historically for 1s a == 1", {"a=1"}),
        ("historically for 1s strong a == 1", {"a=1"}),
        ("previous a == 1", {"holds"}),
        ("earlier a == 1", {"holds"}),
        ("earlier within 1s a == 1", {"holds"}),
        ("not once not a == 1", {"a=1"}),
        ("not once within 1s not a == 1", {"a=1"}),
        ("not (b == 1 since not a == 1)", {"a=1"}),
        ("not (b == 1 since within 1s not a == 1)", {"a=1"}),
        ("not historically not a == 1", {"holds", "a=1"}),
        ("not historically for 1s not a == 1", {"holds", "a=1"}),
        ("not historically for 1s strong not a == 1", None),
        ("not previous a == 1", None),
        ("count(a == 1) >= 2", {"holds", "a=1"}),
        ("count(a == 1) < 2", None),
        ("count(a == 1) == 0", None),
        ("distinct(a) > 2", {"holds", "a"}),
        ("distinct(a where b == 1) > 2", {"holds", "b=1"}),
        ("sum(a) > 2", {"holds", "a"}),
        ("sum(a) > -2", None),
        ("sum(a) > 2 * b", {"b"}),
        ("sum(a where c == 1) > 2 * b", {"b"}),
        ("avg(a) < 2", {"holds", "a"}),
        ("avg(a where c == 1) > 2 * b", {"holds", "c=1"}),
        ("compare(a > 5)", {"a:5..inf"}),
        ("compare(5 >= a)", {"a:-inf..5"}),
        ("compare(a == 'x')", {"a=x"}),
        ("compare(a != 5)", {"a"}),
        ("compare(a > 'x')", {"a"}),
        ("a > b", {"a"}),
        ("3 * a > b", {"a"}),
        ("length(a) > 3", {"a"}),
        ("now() - time(a) < 5", {"a"}),
        ("hour() >= 22", None),
        ("hour() >= 22 and a == 1", {"a=1"}),
        ("a != prev(b)", {"holds"}),
        ("a > last(b where c == 1)", {"holds"}),
        ("age(a == 1) < 5", {"holds", "a=1"}),
        ("age(not a == 1) < 5", None),
        ("compare(count(a == 1) > 2)", {"holds", "a=1"}),
        ("compare(count(a == 1) < 2)", None),
        ("compare(count(a == 1) >= 0)", None),
        ("compare(sum(a) >= 0)", None),
        ("compare(count(a == 1) != true)", None),
        ("compare(earlier count(a == 1) >= 2)", {"holds"}),
        ("compare(sum(a where b == 1) > 2)", {"holds", "b=1"}),
        ("compare(avg(a) > 2)", {"holds", "a"}),
        ("a > 2 * earlier avg(a)", {"holds"}),
        ("max(a where b == 1) within 1s - min(a) > 3", {"holds", "b=1"}),
    ],
)
def test_a_rule_can_only_fire_at_events_that_meet_these_triggers(
    rule: str, expected: set[str] | None
) -> None:
    assert said(analysis_of(parse(rule)).true(parse(rule), ())) == expected


def test_a_relation_needs_one_of_its_facts() -> None:
    analysis = analysis_of(parse("a == 1"))
    assert said(analysis.true(InRelation("r", (1, FactArg("a"), FactArg("b"))), ())) == {"r(a)"}
    assert analysis.true(InRelation("r", (1,)), ()) is None


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("once a == 1", {"a=1"}),
        ("once not a == 1", {"a=1"}),
        ("once within 1s a == 1", {"a=1"}),
        ("historically a == 1", {"a=1"}),
        ("historically not a == 1", {"a=1"}),
        ("historically for 1s strong a == 1", {"a=1", "holds"}),
        ("b == 1 since not a == 1", {"a=1"}),
        ("historically for 1s strong not a == 1", {"a=1"}),
        ("b == 1 since a == 1", {"a=1", "holds"}),
        ("not b == 1 since a == 1", {"a=1", "b=1"}),
        ("earlier a == 1", {"a=1"}),
        ("previous a == 1", {"a=1"}),
        ("count(a == 1) >= 2", {"a=1"}),
        ("distinct(a where b == 1) > 2", {"b=1"}),
        ("sum(a where not b == 1) > 2", {"a"}),
        ("avg(a where b == 1) > 2", {"b=1"}),
    ],
)
def test_a_memory_changes_only_at_events_that_meet_these_triggers(
    node: str, expected: set[str] | None
) -> None:
    condition = parse(node)
    operator = operator_of(condition)
    assert operator is not None
    assert said(operator.memory(condition).changed_by(analysis_of(condition), ())) == expected


@pytest.mark.parametrize(
    "wrapped", [lambda inner: OnceWithin(inner, 1), lambda inner: SinceWithin(inner, inner, 1)]
)
def test_triggers_are_found_by_one_look_at_each_part_however_deep_it_is(
    wrapped: Callable[[Condition], Condition], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def counted(self: Analysis, node: Condition, path: Path, true: Any = Analysis._true) -> Any:
        looks.append(node)
        return true(self, node, path)

    monkeypatch.setattr(Analysis, "_true", counted)
    nested: Condition = AnyOf(tuple(Leaf(f"f{number}", "eq", number) for number in range(100)))
    for _ in range(9):
        nested = wrapped(nested)
    assert len(analysis_of(nested).true(nested, ()) or ()) == 109
    assert len(looks) == 10 + 100


@pytest.mark.parametrize("negated", [Not, lambda node: All((Not(node),))])
def test_what_makes_a_node_false_is_looked_for_once(
    negated: Callable[[Condition], Condition], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def counted(self: Analysis, node: Condition, path: Path, false: Any = Analysis._false) -> Any:
        looks.append(node)
        return false(self, node, path)

    monkeypatch.setattr(Analysis, "_false", counted)
    nested = parse("not a == 1")
    for _ in range(12):
        nested = AnyOf((negated(nested), negated(nested)))
    analysis_of(nested).true(nested, ())
    assert len(looks) <= 50
