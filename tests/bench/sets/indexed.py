"""Many rules, of which an event concerns few: buckets of 50, each selected by its own value."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Condition, Contestant, Event, World, leaf, ours, race
from tests.bench.measuring.rows import Part, Row, Target

CASE = "indexed"
BUCKET_RULES = 50
FACTS = ("type", "tenant", "host")
AMOUNTS = 1_000
COUNTRIES = tuple(f"C{number}" for number in range(20))


def parts(effort: Effort) -> list[Part]:
    """Return one part for all numbers of rules."""
    return [Part(CASE, partial(measure, effort))]


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The rules that one value of one fact selects: their ranges, their countries, their numbers."""

    fact: str
    value: str
    rows: list[tuple[int, int, list[str], int]] = field(default_factory=list)


def world(rules: int, events: int) -> World:
    """Return rules of three leaves: `eq` or `in` on one of several facts, a range, and some countries."""
    drawn = random.Random(rules)
    buckets = [
        _Bucket(FACTS[number % len(FACTS)], f"v{number}") for number in range(max(1, rules // BUCKET_RULES))
    ]
    order = [bucket for bucket in buckets for _ in range(BUCKET_RULES)]
    drawn.shuffle(order)
    conditions: list[Condition] = []
    for number, bucket in enumerate(order):
        low = drawn.randrange(AMOUNTS)
        countries = drawn.sample(COUNTRIES, 4)
        bucket.rows.append((low, low + AMOUNTS // 20, countries, number))
        selects = (
            leaf(bucket.fact, "eq", bucket.value)
            if drawn.random() < 0.5
            else leaf(bucket.fact, "in", [bucket.value, f"also {bucket.value}"])
        )
        within = leaf("amount", "between", [low, low + AMOUNTS // 20])
        conditions.append({"all": [selects, within, leaf("country", "in", countries)]})
    happened: list[Event] = []
    for number in range(events):
        bucket = drawn.choice(buckets)
        fields = {
            **dict.fromkeys(FACTS, "of no rule"),
            bucket.fact: bucket.value,
            "amount": drawn.randrange(AMOUNTS),
            "country": drawn.choice(COUNTRIES),
        }
        happened.append((fields, number, None))
    return World(conditions, happened, _by_dicts(buckets))


def _by_dicts(buckets: list[_Bucket]) -> Contestant:
    """A dict for each fact, from its value to one generated function with all rules of the bucket."""
    indexes = [
        (fact, {bucket.value: _fused(bucket) for bucket in buckets if bucket.fact == fact}.get)
        for fact in FACTS
    ]

    def run(events: list[Event]) -> list[Any]:
        answers = []
        for fields, _, _ in events:
            fired: list[int] = []
            for fact, judge_of in indexes:
                judge = judge_of(fields[fact])
                if judge is not None:
                    judge(fields["amount"], fields["country"], fired)
            answers.append(fired)
        return answers

    return Contestant("floor", run)


def _fused(bucket: _Bucket) -> Callable[[int, str, list[int]], None]:
    """Return the rules of a bucket as one function: adjacent in memory, unlike scattered rows."""
    lines = ["def judge(amount, country, fired):", "    pass"]
    for low, high, countries, number in bucket.rows:
        among = ", ".join(map(repr, countries))
        test = f"{low} <= amount <= {high} and country in {{{among}}}"
        lines.append(f"    if {test}: fired.append({number})")
    bound: dict[str, Any] = {}
    exec("\n".join(lines), bound)
    judge: Callable[[int, str, list[int]], None] = bound["judge"]
    return judge


def measure(effort: Effort) -> list[Row]:
    """Return the cost of an event at each number of rules, and its growth."""
    raced = {}
    for count in effort.indexed_rules:
        made = world(count, effort.events)
        raced[count] = race([ours(made.conditions), made.floor], made.events, effort)
    few, many = min(raced), max(raced)
    cost_us = raced[many].cost_s["ours"] * 1e6
    growth, floor_growth = (raced[many].cost_s[name] / raced[few].cost_s[name] for name in ("ours", "floor"))
    return [
        *(each.row(CASE, f"{count} rules") for count, each in raced.items()),
        Row(
            case=CASE,
            name=f"{many} rules over {few}",
            unit="times the cost",
            ours=growth,
            floor=floor_growth,
            ratio=growth,
            over=f"{few} rules",
            # Many rules live in slow memory, whose speed depends on what else the machine does.
            tolerance=0.5,
            # The floor does the same work for any number of rules, so its growth is due to slow memory.
            target=Target(text="at most 2x, or 3 µs", met=growth <= 2 or cost_us <= 3),
        ),
    ]
