"""Rules that share a few histories: each has a type and a range of its own, and asks one of eight histories.

Twenty rules are of the type of an event; the history is what thousands have in common. Rules are made
together, or at different times, each after an event.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine import Detector
from tests.bench.effort import Effort
from tests.bench.race import Contestant, Event, Raced, race
from tests.bench.rows import Part, Row, Target

CASE = "shared"
RULES_OF_TYPE = 20
COUNTRIES = ("DE", "FR", "US", "CN", "BR", "IN", "GB", "JP")
USERS = 1_000
AMOUNTS = 1_000
WIDTH = 100
STEP_MS = 10
BORN_EVERY_MS = 60_000
LONG_BEFORE_MS = 86_400_000
"""So long before the first event all rules are made: their histories differ no more when it comes."""

Observe = Callable[[Event], Callable[[str], bool]]
"""Observes an event, and gives what tells of each country whether its history holds now."""


@dataclass(frozen=True, slots=True)
class Member:
    """A temporal member as the part that rules share, and by hand."""

    name: str
    shared: str
    history: Callable[[], Observe]
    rounds: int = 0
    """How many times every user is seen in every country first, so that each run begins after all
    births, and what joins with time has joined."""


def once_within() -> Observe:
    """`once within 10m country == …`, for each user."""
    last_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        last_ms[user, fields["country"]] = now_ms
        return lambda country: now_ms - last_ms.get((user, country), float("-inf")) <= 600_000

    return observe


def since_within() -> Observe:
    """`ok == true since within 1h country == …`, for each user."""
    last_ms: dict[str, dict[str, float]] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        of_user = last_ms.setdefault(fields["user"], {})
        if not fields["ok"]:
            of_user.clear()
        of_user[fields["country"]] = now_ms
        return lambda country: now_ms - of_user.get(country, float("-inf")) <= 3_600_000

    return observe


def held_weak() -> Observe:
    """`historically for 1m country != …`, for each user."""
    last_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        last_ms[user, fields["country"]] = now_ms
        return lambda country: now_ms - last_ms.get((user, country), float("-inf")) > 60_000

    return observe


def held_strong() -> Observe:
    """`historically for 1m strong country != …`, for each user."""
    begun_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        for country in COUNTRIES:
            begun_ms.setdefault((user, country), now_ms)
        begun_ms.pop((user, fields["country"]))
        return lambda country: now_ms - begun_ms.get((user, country), float("inf")) >= 60_000

    return observe


def nested() -> Observe:
    """`once within 10m (ok == true and once within 5m country == …)`, for each user."""
    last_ms: dict[tuple[str, str], float] = {}
    last_ok_ms: dict[tuple[str, str], float] = {}

    def observe(event: Event) -> Callable[[str], bool]:
        fields, now_ms, _ = event
        user = fields["user"]
        last_ms[user, fields["country"]] = now_ms
        if fields.get("ok"):
            for country in COUNTRIES:
                if now_ms - last_ms.get((user, country), float("-inf")) <= 300_000:
                    last_ok_ms[user, country] = now_ms
        return lambda country: now_ms - last_ok_ms.get((user, country), float("-inf")) <= 600_000

    return observe


MEMBERS = (
    Member("once within", 'once within 10m country == "{}"', once_within),
    Member("since within", '(ok == true since within 1h country == "{}")', since_within),
    Member("historically for, weak", 'historically for 1m country != "{}"', held_weak),
    Member(
        "once within, nested", 'once within 10m (ok == true and once within 5m country == "{}")', nested, 1
    ),
    Member("historically for, strong", 'historically for 1m strong country != "{}"', held_strong, 1),
)


def parts(effort: Effort) -> list[Part]:
    """Give a part for each member, for rules that are made together and for such that are not."""
    return [
        Part(
            CASE,
            partial(measure, member, apart, effort),
            f"{member.name}, {'apart' if apart else 'together'}",
        )
        for member in MEMBERS
        for apart in (False, True)
    ]


@dataclass(frozen=True, slots=True)
class _Rule:
    type: int
    low: int
    country: str

    def condition(self, shared: str) -> str:
        within = f"amount between {self.low} and {self.low + WIDTH}"
        return f'type == "t{self.type}" and {within} and per user {shared.format(self.country)}'


def measure(member: Member, apart: bool, effort: Effort) -> list[Row]:
    """Give the cost of an event at each number of rules, and how much it grows with them."""
    raced = {count: _raced(member, apart, count, effort) for count in effort.shared_rules}
    name = f"{member.name}, rules made {'at different times' if apart else 'together'}"
    rows = [
        Row(
            case=CASE,
            name=f"{name}, {count} rules",
            unit="µs per event",
            ours=each.cost_s["ours"] * 1e6,
            worst=each.worst_s * 1e6,
            floor=each.cost_s["floor"] * 1e6,
            ratio=each.ratio,
            tolerance=0.5,
        )
        for count, each in raced.items()
    ]
    few, many = min(raced), max(raced)
    growth = raced[many].cost_s["ours"] / raced[few].cost_s["ours"]
    floor_growth = raced[many].cost_s["floor"] / raced[few].cost_s["floor"]
    target = Target(text="at most 2x", met=growth <= 2)
    grown = Row(
        case=CASE,
        name=f"{name}, {many} over {few}",
        unit="times the cost",
        ours=growth,
        floor=floor_growth,
        ratio=growth,
        over=f"{few} rules",
        tolerance=0.5,
        target=target,
    )
    return [*rows, grown]


def _raced(member: Member, apart: bool, count: int, effort: Effort) -> Raced:
    drawn = random.Random(count)
    types = max(1, count // RULES_OF_TYPE)
    rules = [
        _Rule(number % types, drawn.randrange(AMOUNTS - WIDTH), COUNTRIES[number % len(COUNTRIES)])
        for number in range(count)
    ]
    events = [_event(drawn, types, number * STEP_MS) for number in range(effort.events)]
    detector = Detector()
    for number, rule in enumerate(rules):
        detector.add_rule(f"rule {number}", rule.condition(member.shared))
        if apart:
            fields, _, _ = _event(drawn, types, 0)
            detector.evaluate(fields, number * BORN_EVERY_MS - LONG_BEFORE_MS * (1 + count // 1_000))
    before = [
        ({"type": "", "country": country, "user": f"user{user}"}, -LONG_BEFORE_MS / 2 + number, None)
        for number in range(member.rounds)
        for country in COUNTRIES
        for user in range(USERS)
    ]
    detector.evaluate_many(before)
    return race([Contestant("ours", detector.evaluate_many), _by_hand(member, rules, before)], events, effort)


def _event(drawn: random.Random, types: int, time_ms: float) -> Event:
    fields = {
        "type": f"t{drawn.randrange(types)}",
        "amount": drawn.randrange(AMOUNTS),
        "country": drawn.choice(COUNTRIES),
        "user": f"user{drawn.randrange(USERS)}",
        "ok": drawn.random() < 0.9,
    }
    return fields, time_ms, None


def _by_hand(member: Member, rules: list[_Rule], before: list[Event]) -> Contestant:
    """A dict from types to their rules, and one memory for each history."""
    by_type: dict[str, list[tuple[int, int, str]]] = {}
    for rule in rules:
        by_type.setdefault(f"t{rule.type}", []).append((rule.low, rule.low + WIDTH, rule.country))
    observe = member.history()
    for event in before:
        observe(event)

    def run(events: list[Event]) -> list[Any]:
        answers = []
        for event in events:
            fields, _, _ = event
            amount, holds = fields["amount"], observe(event)
            answers.append(
                [
                    1
                    for low, high, country in by_type[fields["type"]]
                    if low <= amount <= high and holds(country)
                ]
            )
        return answers

    return Contestant("floor", run)
