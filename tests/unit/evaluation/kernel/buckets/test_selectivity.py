"""Estimates of how often triggers are met: from what rules ask for, within bounds."""

import pytest

from engine.evaluation.facts.look_up import element_fact
from engine.evaluation.kernel.buckets.selectivity import Selectivity
from engine.evaluation.kernel.buckets.triggers import PRESENT, Found, Hit, Range
from engine.language.operators import LARGEST


def learned(*triggers: Hit | Range | Found) -> Selectivity:
    made = Selectivity({})
    for trigger in triggers:
        made.learn(frozenset({trigger}))
    return made


def values(made: Selectivity, fact: str) -> int:
    """Return how many values of a fact the estimate for one of them assumes."""
    return round(1 / made.cost(frozenset({Hit(fact, 1)}))) - 2


def cost(made: Selectivity, low: float, high: float, fact: str = "x") -> float:
    return made.cost(frozenset({Range(fact, low, high)}))


def test_each_value_of_a_fact_counts_once_and_presence_is_no_value() -> None:
    made = learned(*(Hit("x", number % 3) for number in range(9)), Hit("x", PRESENT), Hit("y", 1))
    assert (values(made, "x"), values(made, "y"), values(made, "z")) == (3, 1, 0)


def test_values_and_facts_are_bounded_and_the_oldest_fact_is_forgotten() -> None:
    made = learned(*(Hit("x", number) for number in range(1_000)))
    assert values(made, "x") == 256
    for number in range(255):
        made.learn(frozenset({Hit(f"fact {number}", 1)}))
    assert values(made, "x") == 256
    made.learn(frozenset({Hit("one more", 1)}))
    assert values(made, "fact 0") == 1
    assert values(made, "x") == 0


def test_the_share_of_a_range_is_that_of_the_known_ends_inside_it() -> None:
    made = learned(*(Range("x", number, number + 0.5) for number in range(100)))
    search = 40 / 201
    assert cost(made, 9.9, 14.9) == pytest.approx(8 * 10.5 / 201 + search)
    assert cost(made, 10, 15) == pytest.approx(8 * 9.5 / 201 + search), "its own ends do not count"
    assert cost(made, 500, 600) == pytest.approx(8 * 0.5 / 201 + search)
    assert cost(made, 10, 10) == pytest.approx(8 * 0.5 / 201 + search)
    assert cost(made, 10, 60) == 0.99, "less than the fact alone"
    assert cost(made, 1, 2, "unknown") == 0.99


@pytest.mark.parametrize(("fact", "share_min"), [("x", 20), (element_fact("x", "it"), 3)])
def test_patterns_share_their_search_even_if_no_rule_is_indexed_by_one_yet(fact: str, share_min: int) -> None:
    patterns = [Found(fact, f"{number}.") for number in range(share_min)]
    alone = Hit("y", PRESENT)
    made = learned(*patterns[1:])
    assert made.cheapest([frozenset({alone}), frozenset({patterns[1]})]) == {alone}
    assert made.cheapest([frozenset({alone}), frozenset({patterns[0]})]) == {patterns[0]}


def test_an_open_end_is_no_end() -> None:
    opened = learned(*(Range("x", number, LARGEST) for number in range(200)), Range("x", -LARGEST, 50.5))
    assert cost(opened, 190.5, LARGEST) == pytest.approx(8 * 9.5 / 202 + 40 / 202)


def test_ends_past_the_bound_replace_others_everywhere() -> None:
    made = learned(*(Range("x", number, LARGEST) for number in range(256)))
    for number in range(2_000):
        made.learn(frozenset({Range("x", 1_000 + number, LARGEST)}))
    assert cost(made, 999, LARGEST) > 0.9, "the new ones have come"
    assert cost(made, -1, 300) < 0.1, "in place of the old ones"


def test_the_ends_that_are_kept_are_bounded() -> None:
    made = learned(*(Range("x", number, LARGEST) for number in range(300)))
    assert len(made._sample("x").ends) == 256
