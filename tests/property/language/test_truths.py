"""A condition classified as never or always true is so at every event, by the reference."""

import random
from collections.abc import Iterator
from typing import Any as Json

import pytest

from engine.language.condition import (
    All,
    Any,
    Compare,
    Condition,
    Count,
    Distinct,
    Earlier,
    InNetwork,
    Leaf,
    Not,
    Once,
    Ref,
    walk,
)
from engine.language.hints.contradictions import idle_alternative
from engine.language.hints.truths import Truths
from engine.language.terms import CountTerm, Fact, Length
from tests.reference import Event, verdict
from tests.worlds.scripts import World

CONDITIONS = 4_000
HISTORIES = 3
EVENTS_MAX = 6


class NarrowWorld(World):
    """A world whose predicates are mostly about one fact, so that many of them exclude each other."""

    def predicate(self, *names: Json) -> Condition:
        """Return a predicate that is likely to contradict or imply another one."""
        choose = self.choose
        number = choose((0, 1, 1.0, 2, "x", True))
        match choose(range(15)):
            case 0:
                return Leaf("a", choose(("eq", "neq")), number)
            case 1:
                return Leaf("a", choose(("in", "nin")), choose(((), (0, 1), (1, 2), (2,), ("x",))))
            case 2 | 12 | 13 | 14:
                return Leaf("a", "between", choose(((0, 1), (1, 2), (2, 2), ("a", "x"))))
            case 3:
                return Compare(Fact("a"), choose(("gt", "gte", "lt", "lte", "eq", "neq")), number)
            case 4:
                return Compare(Length("list"), choose(("gt", "lt", "lte", "neq")), choose((-1, 0, 1, "x")))
            case 5:
                return choose((Not, lambda same: same))(Ref("a", choose(("eq", "eq", "neq")), choose("aab")))
            case 6:
                one, other = choose((("a", "b"), ("b", "a")))
                return Compare(Fact(one), choose(("gt", "gte", "lt", "lte", "eq", "neq")), Fact(other))
            case 7:
                return InNetwork("b", choose((("10.0.0.0/8",), ("10.1.0.0/16", "::1"), ("192.168.0.0/16",))))
            case 8:
                inner = Leaf("a", "eq", 1)
                op, value = choose(("gt", "gte", "lt", "eq")), choose((0, 1, 2))
                return choose((Count(inner, 1, op, value), Distinct("a", None, 1, op, value)))
            case 9:
                return Compare(CountTerm(Leaf("a", "eq", 1)), choose(("gte", "lt")), choose((-1, 0, 1, "x")))
            case 10:
                return choose((Once, Earlier, Not))(self.predicate())
            case _:
                return super().predicate()

    def condition(self, depth: int) -> Condition:
        """Return a condition that is an `and` or an `or` more often than in other worlds."""
        return self.joined(depth) if depth > 1 and self.choose((True, False)) else super().condition(depth)

    def joined(self, depth: int) -> Condition:
        """Return an `and` or an `or`."""
        members = tuple(self.condition(depth - 1) for _ in self.choose(((1, 2), (1, 2, 3))))
        return self.choose((All, Any))(members)


def history(world: World) -> list[Event]:
    """Return a short history of a world."""
    events, clock_us = [], 0
    for _ in world.choose([range(number) for number in range(2, EVENTS_MAX)]):
        submission, clock_us = world.submission(clock_us)
        events.append(Event(clock_us, submission.fields, submission.vars or {}))
    return events


def worlds(seed: int) -> Iterator[NarrowWorld]:
    """Yield worlds that decide at random."""
    chance = random.Random(seed)
    return (NarrowWorld(chance.choice) for _ in range(CONDITIONS))


@pytest.mark.slow
def test_what_is_called_never_or_always_true_is_so_at_every_event() -> None:
    called: dict[tuple[str, bool], int] = {}
    for number, world in enumerate(worlds(1)):
        condition = world.condition(3) if number % 2 else world.joined(2)
        truths = Truths(condition)
        for part, truth in truths.known.items():
            called[type(part).__name__, truth] = called.get((type(part).__name__, truth), 0) + 1
            for _ in range(HISTORIES):
                events = history(world)
                for end in range(1, len(events) + 1):
                    assert verdict(part, events[:end]) is truth, (part, truths.reason(part), events[:end])
    assert sum(called.values()) > CONDITIONS / 4
    assert {(kind, False) for kind in ("All", "Any", "Not", "Once", "Count", "Compare")} <= called.keys()
    assert {(kind, True) for kind in ("Any", "Not", "Once", "Count", "Compare")} <= called.keys()


@pytest.mark.slow
def test_an_alternative_that_is_said_to_add_nothing_is_true_only_where_the_wider_one_is() -> None:
    found = 0
    for world in worlds(2):
        for part, _ in walk(world.condition(3)):
            pair = idle_alternative(part) if isinstance(part, Any) else None
            if pair is None:
                continue
            found += 1
            narrow, wide = pair
            for _ in range(2 * HISTORIES):
                events = history(world)
                for end in range(1, len(events) + 1):
                    told = verdict(narrow, events[:end]), verdict(wide, events[:end])
                    assert told != (True, False), (pair, events[:end])
    assert found > CONDITIONS / 20
