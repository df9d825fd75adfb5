"""Rules that share a few histories: each has a type and a range of its own, and asks one of eight histories.

Twenty rules are of the type of an event; the history is what all have in common. Rules are made together, or
at different times, each after an event.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine import Detector
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Contestant, Event, fed

RULES_OF_TYPE = 20
USERS = 50
AMOUNTS = 1_000
WIDTH = 100
STEP_MS = 10
BORN_EVERY_MS = 60_000
LONG_BEFORE_MS = 86_400_000
"""All rules are made this long before the first event, so that their histories no longer differ then."""
WINDOW_MS = 600_000
COUNTRIES = ("DE", "FR", "US", "CN", "BR", "IN", "GB", "JP")

Observe = Callable[[Event], Callable[[str], bool]]
"""Observes an event, and returns a function that says whether a country's history holds now."""


def latest(kept: int) -> Observe:
    """By hand: the latest times of each user and country, whose oldest is to be within the window."""
    times_ms: dict[tuple[str, str], deque[float]] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        times_ms.setdefault((user, fields["country"]), deque(maxlen=kept)).append(now_ms)

        def holds(country: str) -> bool:
            seen = times_ms.get((user, country), deque())
            return len(seen) == kept and seen[0] >= now_ms - WINDOW_MS

        return holds

    return observe


@dataclass(frozen=True, slots=True)
class Member:
    """A temporal member as the part that rules share, and how many times it keeps by hand."""

    name: str
    shared: str
    kept: int
    apart: bool
    """Whether the rules are made at different times."""


MEMBERS = (
    Member("once within", 'once within 10m country == "{}"', 1, apart=True),
    Member("count", '(count(country == "{}") within 10m >= 3)', 3, apart=False),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of one type, with a range, that asks the history of one country."""

    type: int
    low: int
    country: str

    def condition(self, shared: str) -> str:
        """The rule in the product's language."""
        within = f"amount between {self.low} and {self.low + WIDTH}"
        return f'type == "t{self.type}" and {within} and per user {shared.format(self.country)}'


def world(member: Member, effort: Effort) -> tuple[list[Contestant], list[Event]]:
    """Return the engine and the same by hand, and their events."""
    drawn = random.Random(effort.shared_rules)
    types = max(1, effort.shared_rules // RULES_OF_TYPE)
    rules = [
        Rule(number % types, drawn.randrange(AMOUNTS - WIDTH), COUNTRIES[number % len(COUNTRIES)])
        for number in range(effort.shared_rules)
    ]
    detector = Detector()
    for number, rule in enumerate(rules):
        detector.add_rule(f"rule {number}", rule.condition(member.shared))
        if member.apart:
            fields, _, _ = _event(drawn, rules, 0)
            born_ms = -2 * LONG_BEFORE_MS + number * BORN_EVERY_MS
            detector.evaluate(fields | {"user": "before"}, born_ms)
    events = [_event(drawn, rules, number * STEP_MS) for number in range(effort.events)]
    return [fed(detector), _by_hand(latest(member.kept), rules)], events


def _event(drawn: random.Random, rules: Sequence[Rule], time_ms: float) -> Event:
    fields = {
        "type": f"t{rules[drawn.randrange(len(rules))].type}",
        "amount": drawn.randrange(AMOUNTS),
        "country": drawn.choice(COUNTRIES),
        "user": f"user{drawn.randrange(USERS)}",
    }
    return fields, time_ms, None


def _by_hand(observe: Observe, rules: list[Rule]) -> Contestant:
    """A dict from types to their rules, and one store for each history."""
    by_type: dict[str, list[tuple[int, int, int, str]]] = {}
    for number, rule in enumerate(rules):
        by_type.setdefault(f"t{rule.type}", []).append((number, rule.low, rule.low + WIDTH, rule.country))

    def run(events: list[Event]) -> list[Any]:
        answers = []
        for event in events:
            fields, _, _ = event
            amount, holds = fields["amount"], observe(event)
            answers.append(
                [
                    number
                    for number, low, high, country in by_type[fields["type"]]
                    if low <= amount <= high and holds(country)
                ]
            )
        return answers

    return Contestant("floor", run)
