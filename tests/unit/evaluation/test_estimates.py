"""Estimates of what a rule costs, from its condition alone."""

import pytest

from engine.evaluation.dispatch.index_choice import indexed_ns
from engine.evaluation.dispatch.weighing import Weight, estimate_of, weight_of
from engine.evaluation.plan.requirements import requirements_of
from engine.language.condition import Condition
from engine.language.limits import DEFAULT_LIMITS
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


def weight(text: str) -> Weight:
    read = condition(text)
    return weight_of(read, 0, requirements_of(read).memories)


def test_a_count_that_one_event_meets_is_met_more_often_than_one_that_takes_several() -> None:
    costs = [indexed_ns([weight(f"per user count(a == 1) >= {number}")]) for number in (1, 2, 3)]
    assert costs[0] > costs[1] == costs[2]
