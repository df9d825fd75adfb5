"""Laws between members of the language that the executable specification obeys."""

import random
from collections.abc import Callable, Iterator

import pytest

from engine.language.condition import (
    All,
    Any,
    Avg,
    Condition,
    Count,
    Distinct,
    Earlier,
    EarlierWithin,
    Historically,
    HistoricallyFor,
    Keyed,
    Leaf,
    Not,
    Once,
    OnceWithin,
    Previous,
    Sum,
)
from tests import reference
from tests.reference import Event, verdict
from tests.worlds.scripts import World

ALWAYS = Count(Leaf("a", "eq", 1), None, "gte", 0)
Same = tuple[Condition, Condition]


def laws(c: Condition, w: float, n: int) -> dict[str, Same]:
    """Return pairs of conditions that are true at the same events."""
    return {
        "earlier is once before": (Earlier(c), Previous(Once(c))),
        "once is now or earlier": (Once(c), Any((c, Earlier(c)))),
        "once within is now or earlier within": (OnceWithin(c, w), Any((c, EarlierWithin(c, w)))),
        "previous not is not previous, but at first": (
            Previous(c),
            All((Previous(ALWAYS), Not(Previous(Not(c))))),
        ),
        "once counts one": (Once(c), Count(c, None, "gte", 1)),
        "once within counts one": (OnceWithin(c, w), Count(c, w, "gt", 0)),
        "historically counts none": (Historically(c), Count(Not(c), None, "eq", 0)),
        "historically for counts none": (HistoricallyFor(c, w), Count(Not(c), w, "lt", 1)),
        "gt is not lte": (Count(c, w, "gt", n), Not(Count(c, w, "lte", n))),
        "eq is gte and lte": (
            Distinct("a", c, w, "eq", n),
            All((Distinct("a", c, w, "gte", n), Distinct("a", c, w, "lte", n))),
        ),
        "neq is not eq": (Sum("b", c, w, "neq", n), Not(Sum("b", c, w, "eq", n))),
        "what counts has a mean": (
            Any((Avg("b", c, w, "gte", n), Avg("b", c, w, "lt", n))),
            Any((Avg("b", c, w, "eq", n), Avg("b", c, w, "neq", n))),
        ),
        "at most as many values as events": (
            Distinct("a", c, w, "gt", n),
            All((Distinct("a", c, w, "gt", n), Count(c, w, "gt", n))),
        ),
        "where that is always true changes no slice": (Keyed(c, "b"), Keyed(c, "b", ALWAYS)),
        "a keyed is false where its where is": (All((Keyed(ALWAYS, "b"), c)), Keyed(ALWAYS, "b", c)),
    }


@pytest.mark.parametrize("law", laws(ALWAYS, 0, 0))
def test_a_law_holds_at_every_event(law: str, examples: Callable[..., Iterator[random.Random]]) -> None:
    met = set()
    for drawn in examples(100, law, until=lambda: len(met) > 1):
        world = World(drawn.choice)
        one, other = laws(
            world.condition(drawn.choice((1, 2))), drawn.choice((0, 0.3, 1)), drawn.choice((0, 1))
        )[law]
        history: list[Event] = []
        time_us = 0
        for _ in range(6):
            time_us += drawn.choice((0, 300_000, 300_001, 700_000))
            history.append(Event(time_us, world.fields(), world.vars() or {}))
            assert verdict(one, history) is verdict(other, history), (one, other, history)
            met.add(verdict(one, history))
    assert met == {False, True}


def test_what_was_found_before_changes_no_verdict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among conditions and values that Python finds equal, and slices that share events."""
    met = set()
    for number in range(60):
        drawn = random.Random(f"{seed} {number}")
        world = World(drawn.choice)
        one = world.condition(3)
        conditions = [one, world.edit(one), Keyed(one, "a"), Once(one)]
        history: list[Event] = []
        for time_us in sorted(drawn.choices((0, 300_000, 1_000_000, 1_000_001), k=6)):
            history.append(Event(time_us, world.fields(), world.vars() or {}))
            born = drawn.randrange(len(history))
            remembered = [verdict(condition, history[born:]) for condition in conditions]
            with monkeypatch.context() as patch:
                patch.setattr(reference, "FOUND_MAX", 0)
                patch.setattr(reference, "_found", {})
                anew = [verdict(condition, history[born:]) for condition in conditions]
            assert remembered == anew, (conditions, history[born:])
            met |= set(anew)
    assert met == {False, True}
