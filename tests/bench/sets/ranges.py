"""Rules that are told apart by ranges, of which an event meets about fifty, however many there are.

By hand, each kind has a grid over the values: a list of the rules whose ranges reach into each cell.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.language.operators import LARGEST
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Condition, Contestant, Event, Raced, World, leaf, ours, race
from tests.bench.measuring.rows import Part, Row, Target

CASE = "ranges"
MET = 50
VALUES = 1_000_000
COUNTRIES = tuple(f"C{number}" for number in range(20))
CELLS = 1 << 14
TYPES = 3

Bounds = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """Ranges of one kind: how they are drawn, which value an event has, and how a value becomes a fact."""

    name: str
    bounds: Callable[[random.Random, int], Bounds]
    value: Callable[[random.Random, int], int]
    shown: Callable[[int], Any] = int
    types: int = 1
    """With several, a rule also asks for a type, which few values tell apart."""


def _narrow(drawn: random.Random, rules: int) -> Bounds:
    low = drawn.randrange(VALUES)
    return low, low + MET * VALUES // rules


def _above(drawn: random.Random, rules: int) -> Bounds:
    return drawn.randrange(VALUES), LARGEST


def _skewed(drawn: random.Random, rules: int) -> Bounds:
    """Give a range about the middle, which nearly all events miss by far or by a little."""
    reach = MET * VALUES // 2
    return VALUES // 2 - drawn.randrange(reach) // 100, VALUES // 2 + drawn.randrange(reach) // 100


def _anywhere(drawn: random.Random, rules: int) -> int:
    return drawn.randrange(VALUES)


def _low(drawn: random.Random, rules: int) -> int:
    return drawn.randrange(2 * MET * VALUES // rules)


def _at_the_edge(drawn: random.Random, rules: int) -> int:
    reach = MET * VALUES // 200
    return VALUES // 2 + reach - drawn.randrange(2 * MET * reach // rules)


KINDS = (
    Kind("between numbers", _narrow, _anywhere),
    Kind("thresholds", _above, _low),
    Kind("ranges that nearly all overlap", _skewed, _at_the_edge),
    Kind("between numbers, of three types", _narrow, _anywhere, types=TYPES),
    Kind("between texts", _narrow, _anywhere, lambda value: f"user {value:08}"),
)


def parts(effort: Effort) -> list[Part]:
    """Give a part for each kind."""
    return [Part(CASE, partial(measure, kind, effort), kind.name) for kind in KINDS]


@dataclass(frozen=True, slots=True)
class _Rule:
    low: Any
    high: Any
    country: str
    type: int


def _rules(kind: Kind, count: int) -> Iterator[_Rule]:
    drawn = random.Random(count)
    for number in range(count):
        low, high = kind.bounds(drawn, count)
        yield _Rule(low, high, drawn.choice(COUNTRIES), number % kind.types)


def _condition(kind: Kind, rule: _Rule) -> Condition:
    high = rule.high if rule.high == LARGEST else kind.shown(rule.high)
    members = [
        leaf("amount", "between", [kind.shown(rule.low), high]),
        # A negation, by which rules are not indexed.
        {"not": leaf("country", "in", [each for each in COUNTRIES if each != rule.country])},
    ]
    return {"all": [leaf("type", "eq", rule.type), *members] if kind.types > 1 else members}


def world(kind: Kind, rules: int, events: int) -> World:
    """Give the rules of a kind, and events."""
    drawn, made = random.Random(rules), list(_rules(kind, rules))
    happened: list[Event] = []
    for number in range(events):
        fields = {
            "amount": kind.shown(kind.value(drawn, rules)),
            "country": drawn.choice(COUNTRIES),
            "type": drawn.randrange(kind.types),
        }
        happened.append((fields, number, None))
    return World([_condition(kind, rule) for rule in made], happened, _by_grid(kind, made, happened))


def _by_grid(kind: Kind, rules: list[_Rule], events: list[Event]) -> Contestant:
    """A grid over the values that events have, fine enough that a cell has few rules in vain."""
    values = sorted(fields["amount"] for fields, _, _ in events)
    first, last = (int(str(values[place]).removeprefix("user ")) for place in (0, -1))
    size = max(1, (last - first) // CELLS)
    grid: list[list[tuple[Any, Any, str, int]]] = [[] for _ in range((last - first) // size + 1)]
    for rule in rules:
        if rule.high >= first and rule.low <= last:
            row = (rule.low, rule.high, rule.country, rule.type)
            for cell in range(
                (max(rule.low, first) - first) // size, int((min(rule.high, last) - first) // size) + 1
            ):
                grid[cell].append(row)

    def run(events: list[Event]) -> list[Any]:
        answers = []
        for fields, _, _ in events:
            amount, country, of_type = fields["amount"], fields["country"], fields["type"]
            value = amount if type(amount) is int else int(amount[5:])
            answers.append(
                [
                    1
                    for low, high, other, kind in grid[(value - first) // size]
                    if low <= value <= high and kind == of_type and country == other
                ]
            )
        return answers

    return Contestant("floor", run)


def measure(kind: Kind, effort: Effort) -> list[Row]:
    """Give the cost of an event at the least and the largest number of rules, and how much it grows."""
    raced: dict[int, Raced] = {}
    for count in (min(effort.indexed_rules), max(effort.indexed_rules)):
        made = world(kind, count, effort.events)
        raced[count] = race([ours(made.conditions), made.floor], made.events, effort)
    rows = [
        Row(
            case=CASE,
            name=f"{kind.name}, {count} rules",
            unit="µs per event",
            ours=each.cost_s["ours"] * 1e6,
            worst=each.worst_s * 1e6,
            floor=each.cost_s["floor"] * 1e6,
            ratio=each.ratio,
            tolerance=0.5,
            remark=f"{each.events['ours']} events, {each.fired['ours']} firings",
        )
        for count, each in raced.items()
    ]
    few, many = min(raced), max(raced)
    growth = raced[many].cost_s["ours"] / raced[few].cost_s["ours"]
    grown = Row(
        case=CASE,
        name=f"{kind.name}, {many} rules over {few}",
        unit="times the cost",
        ours=growth,
        floor=raced[many].cost_s["floor"] / raced[few].cost_s["floor"],
        ratio=growth,
        over=f"{few} rules",
        tolerance=0.5,
        target=Target(text="at most 2x", met=growth <= 2),
    )
    return [*rows, grown]
