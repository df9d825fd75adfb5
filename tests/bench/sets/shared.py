"""Rules that share a few histories: each has a type and a range of its own, and asks one of eight histories.

Twenty rules are of the type of an event; the history is what thousands have in common. Rules are made
together, or at different times, each after an event. The same rules see events of many users, then of one.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine import Detector
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call
from tests.bench.measuring.race import Contestant, Event, Raced, races
from tests.bench.measuring.rows import Part, Row, at_most
from tests.bench.sets.shared_members import COUNTRIES, MEMBERS, Member, Observe

CASE = "shared"
RULES_OF_TYPE = 20
ONE_USER = 1
AMOUNTS = 1_000
WIDTH = 100
STEP_MS = 10
BORN_EVERY_MS = 60_000
LONG_BEFORE_MS = 86_400_000
"""So long before the first event all rules are made: their histories differ no more when it comes."""
PASSES_MAX = 5
MOST_OF = ("once within", "count")
"""The members that are measured with the most rules, too."""


def parts(effort: Effort) -> list[Part]:
    """Give a part for each member, for rules that are made together and for such that are not.

    A part builds its rules once, which takes longer than all its passes, and is not measured again.
    """
    return [
        *(
            Part(
                CASE,
                partial(measure, member, apart, effort),
                f"{member.name}, {'apart' if apart else 'together'}",
                settles=False,
            )
            for member in MEMBERS
            for apart in (False, True)
        ),
        Part(CASE, partial(measure_memory, effort), "memory", settles=False),
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
    counts = effort.shared_rules if member.name in MOST_OF else effort.shared_rules[:2]
    shorter = replace(effort, passes=min(PASSES_MAX, effort.passes))
    worlds = [SharedWorld.drawn(member, apart, count, shorter) for count in counts]
    made = f"rules made {'at different times' if apart else 'together'}"
    rows = []
    # Events of many users come first, and then those of one, who is none of these.
    for number, users in enumerate((effort.shared_users, ONE_USER)):
        raced = races([(world.contestants, world.events[number]) for world in worlds], shorter)
        name = f"{member.name}, {made}{'' if users > 1 else ', one user'}"
        rows += _rows(name, dict(zip(counts, raced, strict=True)))
    return rows


def _rows(name: str, raced: dict[int, Raced]) -> list[Row]:
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
    few = min(raced)
    for many in sorted(raced)[1:]:
        growth, floor_growth = (raced[many].growth(raced[few], whose) for whose in ("ours", "floor"))
        rows.append(
            Row(
                case=CASE,
                name=f"{name}, {many} over {few}",
                unit="times the cost",
                ours=growth,
                floor=floor_growth,
                ratio=growth,
                over=f"{few} rules",
                tolerance=0.5,
                target=at_most(2, growth, "at most 2x"),
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class SharedWorld:
    """Rules that have seen every user, and the events of two races."""

    contestants: list[Contestant]
    events: list[list[Event]]

    @classmethod
    def drawn(cls, member: Member, apart: bool, count: int, effort: Effort) -> "SharedWorld":
        drawn = random.Random(count)
        rules = _rules(drawn, count)
        detector = _detector(member, apart, rules, drawn)
        before: list[Event] = [
            (
                {"type": "", "country": country, "user": f"user{user}"},
                -LONG_BEFORE_MS / 2 + number,
                None,
            )
            for number in range(member.rounds)
            for country in COUNTRIES
            for user in (*range(effort.shared_users), "only")
        ]
        detector.evaluate_many(before)
        observe = member.history()
        for event in before:
            observe(event)
        events = [
            [
                _event(drawn, rules, (number * effort.events + place) * STEP_MS, users)
                for place in range(effort.events)
            ]
            for number, users in enumerate((effort.shared_users, ONE_USER))
        ]
        return cls([Contestant("ours", detector.evaluate_many), _by_hand(observe, rules)], events)


def _rules(drawn: random.Random, count: int) -> list[_Rule]:
    types = max(1, count // RULES_OF_TYPE)
    return [
        _Rule(number % types, drawn.randrange(AMOUNTS - WIDTH), COUNTRIES[number % len(COUNTRIES)])
        for number in range(count)
    ]


def _detector(member: Member, apart: bool, rules: Sequence[_Rule], drawn: random.Random) -> Detector:
    """Give a detector with these rules. Between those that are made apart, another user has events."""
    detector = Detector()
    first_ms = -LONG_BEFORE_MS * (1 + len(rules) // 1_000)
    for number, rule in enumerate(rules):
        detector.add_rule(f"rule {number}", rule.condition(member.shared))
        if apart:
            fields, _, _ = _event(drawn, rules, 0, ONE_USER)
            detector.evaluate(fields | {"user": "before"}, first_ms + number * BORN_EVERY_MS)
    return detector


def _event(drawn: random.Random, rules: Sequence[_Rule], time_ms: float, users: int) -> Event:
    fields = {
        "type": f"t{rules[drawn.randrange(len(rules))].type}",
        "amount": drawn.randrange(AMOUNTS),
        "country": drawn.choice(COUNTRIES),
        "user": f"user{drawn.randrange(users)}" if users > 1 else "useronly",
        "ok": drawn.random() < 0.9,
    }
    return fields, time_ms, None


def _by_hand(observe: Observe, rules: list[_Rule]) -> Contestant:
    """A dict from types to their rules, and one memory for each history."""
    by_type: dict[str, list[tuple[int, int, str]]] = {}
    for rule in rules:
        by_type.setdefault(f"t{rule.type}", []).append((rule.low, rule.low + WIDTH, rule.country))

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


# -- in processes of their own -------------------------------------------------------------------------------


def keep(rules: int, keys: int) -> dict[str, float]:
    """Give the memory that the state of rules takes, made apart, over keys in each of the eight countries."""
    drawn = random.Random(rules)
    made = _rules(drawn, rules)
    detector = _detector(_MEMORY_OF, True, made, drawn)
    for country in COUNTRIES:
        for user in range(keys):
            detector.evaluate({"type": "", "country": country, "user": f"user{user}"}, 0)
    return {"said_bytes": detector.histories.bytes, "live": detector.histories.live}


_MEMORY_OF = next(member for member in MEMBERS if member.name == "once within")


def measure_memory(effort: Effort) -> list[Row]:
    """Give the state of many rules that share eight histories beside that of eight rules."""
    keys, (few, many) = effort.keys_max, (len(COUNTRIES), effort.shared_rules[1])
    kept = {rules: call(__name__, "keep", rules=rules, keys=keys) for rules in (few, many)}
    ratio = kept[many]["said_bytes"] / kept[few]["said_bytes"]
    return [
        Row(
            case=CASE,
            name=f"state of {many} rules made at different times over {keys} keys",
            unit="bytes a key, as the detector says",
            ours=kept[many]["said_bytes"] / keys,
            floor=kept[few]["said_bytes"] / keys,
            ratio=ratio,
            over=f"{few} rules",
            target=at_most(1.1, ratio, f"at most 1.1x {few} rules"),
            tolerance=0.1,
        )
    ]
