"""Estimates of what a rule costs, from its condition alone."""

import pytest

from engine.evaluation.kernel.costs import PATTERN_NS, estimate_of
from engine.language.text.parser import parse


def event_ns(text: str) -> int:
    return estimate_of(parse(text)).event_ns


@pytest.mark.parametrize(
    ("text", "memories"),
    [
        ("a == 1", {}),
        ("once a == 1", {(): 1}),
        ("count(a == 1) >= 5", {(): 5}),
        ("distinct(a) > 5", {(): 6}),
        ("sum(a) within 1h > 5", {(): 258}),
        ("sum(a) > 5", {(): 1}),
        ("once a == 1 and previous b == 1 and count(a == 1) >= 5", {(): 7}),
        ("per user (count(a == 1) >= 5 and per ip once b == 1)", {("user",): 5, ("user", "ip"): 1}),
    ],
)
def test_what_is_remembered_for_each_key_is_estimated(
    text: str, memories: dict[tuple[str, ...], int]
) -> None:
    assert estimate_of(parse(text)).memories == memories


def test_a_rule_costs_more_the_more_it_has_to_do() -> None:
    rules = ("a == 1", "a >= 1", "once a == 1", "per k once a == 1", "per k count(a == 1) >= 3")
    costs = [*map(event_ns, rules), event_ns("per k sum(a) > 3"), event_ns("a matches 'x'")]
    assert costs == sorted(set(costs))
    assert event_ns("a matches 'x'") > PATTERN_NS


def test_what_comes_later_in_a_conjunction_is_seldom_evaluated() -> None:
    one, two, three = (
        event_ns(" and ".join(f"{name} >= 1" for name in names)) for names in ("a", "ab", "abc")
    )
    assert one < two < three < 2 * one
    assert event_ns("a >= 1 or b >= 1") > two
