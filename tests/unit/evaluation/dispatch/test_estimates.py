"""Estimates of what a rule costs, from its condition alone, and of what all rules cost with an index."""

from collections.abc import Iterable
from typing import Any

import pytest

from engine.evaluation.dispatch import index_choice, weighing
from engine.evaluation.dispatch.index_choice import index_pays, indexed_ns
from engine.evaluation.dispatch.weighing import Member, Weight, estimate_of, weight_of
from engine.evaluation.requirements import requirements_of
from engine.evaluation.kernel.selection.triggers import PRESENT, Element, Found, Hit, Holding, Range, Trigger, Triggers
from engine.language.condition import Condition
from engine.language.limits import DEFAULT_LIMITS
from engine.language.operators import LARGEST
from engine.language.text.parser import parse


def condition(text: str) -> Condition:
    return parse(text, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("text", "memories"),
    [
        ("a == 1", {}),
        ("once a == 1", {(): 1}),
        ("count(a == 1) >= 5", {(): 5}),
        ("distinct(a) > 5", {(): 6}),
        ("sum(a) within 1h > 5", {(): 256}),
        ("once a == 1 and previous b == 1 and count(a == 1) >= 5", {(): 7}),
        ("per user (count(a == 1) >= 5 and per ip once b == 1)", {("user",): 5, ("user", "ip"): 1}),
    ],
)
def test_what_is_remembered_for_each_key_is_estimated(
    text: str, memories: dict[tuple[str, ...], int]
) -> None:
    assert estimate_of(condition(text)).memories == memories


def weight(text: str, birth: int = 0) -> Weight:
    read = condition(text)
    return weight_of(read, birth, requirements_of(read, birth).memories)


def sum_of(names: str) -> float:
    """Add up what parts cost. Their names are those of the constants, apart from case."""
    costs: list[float] = [getattr(weighing, f"_{name.upper()}") for name in names.split()]
    return sum(costs)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a == 1", "rule equality"),
        ("a >= 1", "rule leaf"),
        ("a >= 1 or a == 1", "rule leaf equality"),
        ("per user a == 1", "rule key equality"),
        ("per user where b >= 1 a == 1", "rule key leaf equality"),
        ("once a == 1", "rule verdict update equality"),
        ("per user once a == 1", "rule key verdict keyed_update equality"),
        ("once not a == 1", "rule verdict update stamp equality"),
        ("per user once not a == 1", "rule key verdict keyed_update keyed_stamp equality"),
        ("count(a == 1) >= 3", "rule compared update equality"),
        ("per user sum(a where b == 1) > 3", "rule key compared_sum keyed_update equality"),
    ],
)
def test_a_rule_costs_the_sum_of_its_parts(text: str, parts: str) -> None:
    assert estimate_of(condition(text)).event_ns == sum_of(parts)
    assert weight(text).fused_ns == sum_of(parts)


def test_what_comes_later_in_a_conjunction_is_seldom_evaluated() -> None:
    often, seldom = sum_of("rule leaf"), sum_of("leaf") * sum_of("after_first")
    assert weight("a >= 1 and b >= 1 and c >= 1").fused_ns == pytest.approx(often + 2 * seldom)


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        ("a == 1", "row"),
        ("not a == 1", "row"),
        ("a between 1 and 2", "in_range"),
        ("a == 1 or b == 1", "selected"),
        ("a == 1 and once b == 1", "row read"),
        ("a == 1 and per user once b == 1", "row keyed_read"),
    ],
)
def test_an_indexed_rule_also_costs_its_row_and_what_it_reads(text: str, beyond: str) -> None:
    found = weight(text)
    assert found.indexed.ns == found.tests_ns + sum_of(beyond)


def test_ranges_of_different_facts_are_in_different_loops_for_rules_and_in_one_for_updates() -> None:
    found = weight("a >= 1 and once b >= 1")
    assert (found.indexed.by_fact, found.updates[0].indexed.by_fact) == (True, False)


@pytest.mark.parametrize(
    ("text", "beyond"),
    [
        ("count(a == 1) >= 3", "recorded"),
        ("count(not a == 1) >= 3", "recorded"),
        ("once a == 1", ""),
        ("once not a == 1", "unstamped"),
    ],
)
def test_an_indexed_update_also_costs_what_it_must_write(text: str, beyond: str) -> None:
    [update] = weight(text).updates
    assert update.indexed.ns == update.fused_ns + sum_of(beyond)


@pytest.mark.parametrize(
    ("text", "joins"), [("per user once a == 1", True), ("once (a == 1 and once b == 1)", False)]
)
def test_memories_of_several_births_are_one_update_where_they_join(text: str, joins: bool) -> None:
    older, younger, twin = (weight(text, birth).updates[0] for birth in (3, 7, 7))
    assert older.fused_name != younger.fused_name == twin.fused_name
    assert (older.indexed_name == younger.indexed_name) is joins
    assert younger.indexed_name == twin.indexed_name


def test_the_triggers_of_a_rule_are_those_of_its_birth() -> None:
    found = weight("per user where once a == 1 once b == 1", 7)
    held = [each[:2] for each in found.indexed.triggers or () if isinstance(each, Holding)]
    assert held == [found.updates[0].indexed_name[:2]]


def test_only_paths_with_keys_are_paths_of_a_rule() -> None:
    found = weight("once a == 1 and per user once b == 1")
    assert found.paths == {path for _, path in requirements_of(condition("per user once b == 1")).memories}


def test_a_pattern_is_met_less_often_than_a_range_and_more_often_than_a_value() -> None:
    pattern, value = Found("path", "x"), Hit("b", 1)
    assert weight('a > 3 and path matches "x"').indexed.triggers == of(pattern)
    assert weight('path matches "x" and a > 3').indexed.triggers == of(pattern)
    assert weight('path matches "x" and b == 1').indexed.triggers == of(value)


def test_a_count_that_one_event_meets_is_met_more_often_than_one_that_takes_several() -> None:
    costs = [indexed_ns([weight(f"per user count(a == 1) >= {number}")]) for number in (1, 2, 3)]
    assert costs[0] > costs[1] == costs[2]


def test_indexed_rules_stay_indexed_until_one_function_costs_much_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_choice, "indexed_ns", lambda _: 100.0)
    for fused, choices in ((69.0, (False, False)), (71.0, (False, True)), (101.0, (True, True))):
        monkeypatch.setattr(index_choice, "fused_ns", lambda _, fused=fused: fused)
        assert (index_pays([], indexed=False), index_pays([], indexed=True)) == choices


ROW_NS = 100.0


def beyond_an_index(rules: Iterable[Triggers | None], *, by_fact: bool = True) -> float:
    """Give what rules with these triggers cost beyond an index without rules."""
    weights = [Weight(0.0, Member(ROW_NS, triggers, "shape", by_fact), (), frozenset()) for triggers in rules]
    return indexed_ns(weights) - indexed_ns([])


def of(*triggers: Trigger) -> Triggers:
    return frozenset(triggers)


MET = index_choice._LOOP + ROW_NS
"""A rule that is a row of a loop of its own, at an event that meets it."""
ENDS = index_choice._FEW_RANGES, index_choice._END


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([None], MET, id="every event"),
        pytest.param([None, None], MET + ROW_NS, id="every event, twice in one loop"),
        pytest.param([of(Hit("a", 1))], MET / 2, id="a value, or another"),
        pytest.param([of(Element("a", 1)), of(Element("a", 2))], 2 * MET / 3, id="one of two elements"),
        pytest.param([of(Hit("a", PRESENT))], MET, id="any value"),
        pytest.param([of(Hit("a", 1), Hit("b", 1))], ROW_NS, id="several, so in no loop"),
        pytest.param([of(Hit("a", 1), Hit("a", 2))], 2 * MET / 3, id="one of two"),
        pytest.param([of(Found("a", "x"))], weighing.PATTERN_NS + MET / 2, id="a pattern"),
        pytest.param(
            [of(Found("a", f"x{number}")) for number in range(9)],
            index_choice._SEARCH + 9 * MET / 10,
            id="patterns that are searched at once",
        ),
        pytest.param(
            [of(Range("a", 1, 2))], ENDS[0] + 2 * ENDS[1] + index_choice._LOOP + ROW_NS / 2, id="range"
        ),
        pytest.param([of(Range("a", 1, LARGEST))], ENDS[0] + ENDS[1] + MET, id="from"),
        pytest.param([of(Range("a", -LARGEST, 1))], ENDS[0] + ENDS[1] + index_choice._LOOP, id="up to"),
        pytest.param([of(Range("a", -LARGEST, LARGEST))], ENDS[0] + index_choice._LOOP, id="without ends"),
    ],
)
def test_indexed_rules_cost_their_searches_their_loops_and_the_rows_that_are_met(
    rules: list[Triggers | None], expected: float
) -> None:
    assert beyond_an_index(rules) == pytest.approx(expected)


def test_many_ends_are_searched_and_few_compared() -> None:
    few, more = (
        beyond_an_index([of(Range("a", number, number + 0.5)) for number in reversed(range(count))])
        for count in (8, 9)
    )
    assert few == pytest.approx(ENDS[0] + 16 * ENDS[1] + index_choice._LOOP + ROW_NS * 8 / 16)
    assert more == pytest.approx(index_choice._RANGES + index_choice._LOOP + ROW_NS * 9 / 18)


def test_an_event_has_few_of_many_facts() -> None:
    facts = [f"fact {number}" for number in range(16)]
    half = index_choice._PRESENT_MAX / 16
    assert beyond_an_index([of(Hit(fact, PRESENT)) for fact in facts]) == pytest.approx(16 * half * MET)
    ranges: list[Any] = [of(Range(fact, 1, 2)) for fact in facts]
    searched = 16 * half * (ENDS[0] + 2 * ENDS[1] + ROW_NS / 2)
    assert beyond_an_index(ranges) == pytest.approx(searched + 16 * half * index_choice._LOOP)
    assert beyond_an_index(ranges, by_fact=False) == pytest.approx(searched + index_choice._LOOP)


def test_each_path_of_keys_is_one_table() -> None:
    paths = [requirements_of(condition(f"per {key} once a == 1")).memories[0][1] for key in ("b", "c")]
    member = Member(0.0, of(Hit("a", 1)), "shape")
    costs = [
        indexed_ns([Weight(0.0, member, (), frozenset({path})) for path in found])
        for found in ([], paths[:1], paths[:1] * 2, paths)
    ]
    without = costs[0] + index_choice._LOOP / 2
    assert costs[1:] == pytest.approx([without + tables * index_choice._TABLE for tables in (1, 1, 2)])
