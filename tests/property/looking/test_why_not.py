"""What would turn a verdict is the smallest set of changes, by comparison with all events of a world."""

import random

import pytest

from engine import Condition, Detector, explain
from engine.language import condition as terms
from engine.language.text.parser import parse
from tests.differential.explanations import judge_why_not
from tests.reference import Event

COMPARED = (
    "{} > 1",
    "{} < 3",
    "{} >= 2",
    "{} <= 1",
    "{} == 1",
    "{} == 2",
    "{} != 1",
    "{} in [1, 3]",
    "{} not in [2]",
    "{} between 1 and 2",
    '{} == "a"',
    "{0} == {0}",
    "x == y",
    "x != y",
)
VALUES = (None, None, 0, 1, 2, 3, 1.5, "a", "b", True)


def condition(drawn: random.Random, depth: int) -> Condition:
    """Return a condition of few facts, so that its predicates depend on one another."""
    if not depth:
        return parse(drawn.choice(COMPARED).format(drawn.choice("xxxy")))
    inner = condition(drawn, depth - 1)
    match drawn.choice("aaaaaooooonnekhcs"):
        case "a":
            return terms.All((inner, condition(drawn, depth - 1)))
        case "o":
            return terms.Any((inner, condition(drawn, depth - 1)))
        case "n":
            return terms.Not(inner)
        case "e":
            return terms.OnceWithin(inner, 1)
        case "k":
            return terms.Keyed(inner, "k", drawn.choice((None, parse("x > 1"))))
        case "h":
            return terms.Historically(inner)
        case "c":
            return terms.Count(inner, None, "gte", 2)
        case _:
            return terms.Since(inner, parse("y == 1"))


def event(drawn: random.Random) -> dict:
    fields = {name: drawn.choice(VALUES) for name in "xy"} | {"k": 1}
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.slow
def test_the_smallest_set_is_what_all_events_of_a_small_world_say(seed: int) -> None:
    met = {"none": 0, "one": 0, "several": 0}
    for number in range(200):
        drawn = random.Random(f"{seed} {number}")
        detector, history = Detector(), []
        detector.add_rule("rule", condition(drawn, drawn.choice((1, 2, 2, 3))))
        for place in range(drawn.choice((0, 1, 2))):
            history.append(Event(place * 500_000, event(drawn), {}))
            detector.evaluate(history[-1].fields, place * 500)
        history.append(Event(1_500_000, event(drawn), {}))
        [explained] = explain(detector, history[-1].fields, 1_500).rules
        judge_why_not(explained, history)
        found = explained.why_not
        met["none" if found is None else "one" if len(found) == 1 else "several"] += 1
    assert min(met.values()) > 10, met
