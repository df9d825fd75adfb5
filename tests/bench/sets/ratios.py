"""Some quick ratios of the engine in process to handwritten code, for every change, in half a minute.

Each world is small and one of a kind: rules without and with keys, counts, ranges with lists and patterns, an
index, shared histories, a mixture, a body. What takes a third more than recorded, three times, is worse. The
other cases measure the same shapes in larger worlds, beside peers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import re2

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import BATCH_EVENTS, Contestant, Event, Raced, ours, race, races, submitted
from tests.bench.measuring.rows import Part, Row
from tests.bench.rules import counting, stateless, temporal
from tests.bench.rules.peers import ThreeLeaves
from tests.bench.sets import bodies, curve, indexed, shared

CASE = "ratios"
MIXED_RULES = 20
SKEWED_KEYS = 1_000
HAND_WRITTEN = "closures by hand"
NEVER = float("-inf")
FED = {
    "where none fires": "per user once within 10m ok == 3",
    "where each event fires": "per user exists user",
    "where each fires for what it counts": "per user count(exists user) within 10m >= 1",
}
"""Conditions by their names in the race."""

Judge = Callable[[dict[str, Any], float], bool]
"""Returns whether a rule is true at an event with these fields and this time in milliseconds."""


def parts(effort: Effort) -> list[Part]:
    """Return a part for each kind of world."""
    short = shortened(effort)
    measures: dict[str, Callable[[Effort], list[Row]]] = {
        "one rule": measure_one,
        "keys": measure_keys,
        "leaves": measure_leaves,
        "indexed": measure_indexed,
        "shared": measure_shared,
        "mixed": measure_mixed,
        "body": measure_body,
        "feed": measure_feed,
    }
    return [Part(CASE, partial(measure, short), name) for name, measure in measures.items()]


def shortened(effort: Effort) -> Effort:
    """Return worlds that are made in seconds, with many short passes."""
    few, many = effort.indexed_rules[:2]
    return replace(
        effort,
        warm_events=min(5_000, effort.warm_events),
        warm_s=min(0.3, effort.warm_s),
        passes=min(21, effort.passes * 3),
        pass_s=min(0.015, effort.pass_s),
        pass_events_max=min(1_500, effort.pass_events_max),
        stateless_rules=effort.stateless_rules[1:],
        indexed_rules=(min(1_000, few), min(4_000, many)),
        keys=min(5_000, effort.keys),
    )


def measure_one(effort: Effort) -> list[Row]:
    """Return `once within` alone, for all events together and for each of many keys."""
    member = next(member for member in temporal.MEMBERS if member.name == "once within")
    longer = replace(effort, pass_events_max=4 * effort.pass_events_max)
    rows = []
    for keyed in (False, True):
        stream = temporal.Stream(step_ms=100, window_ms=600_000, keys=effort.keys_of_stream)
        rule = f"per user ({member.condition})" if keyed else member.condition
        floor = temporal.by_hand(member.loop_keyed if keyed else member.loop, stream.window_ms)
        raced = race([ours([rule]), floor], stream.events(longer.events, alarming=0.05), longer)
        rows.append(raced.row(CASE, f"one rule, {f'{stream.keys} keys' if keyed else 'no key'}"))
    return rows


def measure_keys(effort: Effort) -> list[Row]:
    """Return conditions that count: over equally frequent keys, and over fewer keys of skewed frequency."""
    one_lap = replace(effort, pass_events_max=BATCH_EVENTS)
    rows = []
    for keys, skewed in ((effort.keys, False), (min(SKEWED_KEYS, effort.keys), True)):
        laps = counting.laps(counting.FORMS, keys, one_lap, skewed=skewed)
        for form, mine in zip(counting.FORMS, laps, strict=True):
            passes_s = {"ours": [lap.ours_s for lap in mine], "floor": [lap.floor_s for lap in mine]}
            name = f"{form.name}, {keys} keys{', skewed' if skewed else ''}"
            rows.append(Raced(passes_s, {}, {}).row(CASE, name))
    return rows


def measure_leaves(effort: Effort) -> list[Row]:
    """Return rules of a range, a list and a pattern."""
    rows = []
    for count in effort.stateless_rules:
        rules = stateless.rules_drawn(count)
        contestants = [ours([rule.text() for rule in rules]), leaves_by_hand(rules)]
        raced = race(contestants, stateless.events_drawn(effort.events), effort)
        rows.append(raced.row(CASE, f"{count} rules of a range, a list and a pattern", over=HAND_WRITTEN))
    return rows


def measure_indexed(effort: Effort) -> list[Row]:
    """Return rules of which an event concerns 50, out of fewer and of more."""
    worlds = {count: indexed.world(count, effort.events) for count in effort.indexed_rules}
    contested = [([ours(world.conditions), world.floor], world.events) for world in worlds.values()]
    raced = races(contested, effort)
    return [each.row(CASE, f"{count} indexed rules") for count, each in zip(worlds, raced, strict=True)]


def measure_shared(effort: Effort) -> list[Row]:
    """Return rules that share a few histories."""
    raced = races([shared.world(member, effort) for member in shared.MEMBERS], effort)
    return [
        each.row(
            CASE,
            f"{effort.shared_rules} rules that share `{member.name}`, "
            f"made {'at different times' if member.apart else 'together'}",
        )
        for member, each in zip(shared.MEMBERS, raced, strict=True)
    ]


def measure_mixed(effort: Effort) -> list[Row]:
    """Return a few rules of all kinds, evaluated by one function."""
    conditions = [curve.mixed(number) for number in range(MIXED_RULES)]
    events = curve.events(effort.events, MIXED_RULES)
    raced = race([ours(conditions), mixed_by_hand(MIXED_RULES)], events, effort)
    return [raced.row(CASE, f"{MIXED_RULES} mixed rules", over=HAND_WRITTEN)]


def measure_body(effort: Effort) -> list[Row]:
    """Return the cost of a batch from body to answer, relative to decoding."""
    fewer = replace(effort, passes=effort.passes // 2, pass_events_max=bodies.EVENTS)
    rows = bodies.measure(fewer, bodies.FORMS[:1])
    return [replace(row, case=CASE, target=None) for row in rows]


def measure_feed(effort: Effort) -> list[Row]:
    """Return rules that notify relative to the same without: where none fires, and where one does."""
    rows = []
    for name, condition in FED.items():
        stream = temporal.Stream(step_ms=100, window_ms=600_000, keys=effort.keys_of_stream)
        fewer = replace(effort, pass_events_max=effort.pass_events_max // 4)
        contestants = [submitted([condition], notify=True), submitted([condition], name="floor")]
        raced = race(contestants, stream.events(fewer.events, 0.05), fewer)
        rows.append(raced.row(CASE, f"a rule that notifies, {name}", over="the same without `notify`"))
    return rows


# -- by hand -------------------------------------------------------------------------------------------------


def leaves_by_hand(rules: Sequence[ThreeLeaves]) -> Contestant:
    """A closure for each rule, called one after another with the facts that all of them read."""
    numbered = [(number, _three_leaves(rule)) for number, rule in enumerate(rules)]

    def run(events: list[Event]) -> list[Any]:
        answers = []
        for fields, _, _ in events:
            amount, country, email = fields["amount"], fields["country"], fields["email"]
            answers.append([number for number, judge in numbered if judge(amount, country, email)])
        return answers

    return Contestant("floor", run)


def mixed_by_hand(count: int) -> Contestant:
    """The rules of `curve.mixed`: a closure for each, with a dict if it has state."""
    numbered = [(number, _MIXED[number % len(_MIXED)](number)) for number in range(count)]

    def run(events: list[Event]) -> list[Any]:
        return [
            [number for number, judge in numbered if judge(fields, time_ms)] for fields, time_ms, _ in events
        ]

    return Contestant("floor", run)


def _three_leaves(rule: ThreeLeaves) -> Callable[[int, str, str], bool]:
    low, high, among = rule.low, rule.high, frozenset(rule.countries)
    search = re2.compile(rule.pattern).search
    return lambda amount, country, email: (
        low <= amount <= high and country in among and search(email) is not None
    )


def _pattern(number: int) -> Judge:
    search = re2.compile(f"/dir{number}/[a-f]+x").search
    return lambda fields, _: search(fields["path"]) is not None


def _equality(number: int) -> Judge:
    kind = f"v{number}"
    return lambda fields, _: fields["kind"] == kind and fields["amount"] > number


def _keyed(number: int) -> Judge:
    kind, seen_ms = f"v{number}", dict[str, float]()

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        user = fields["user"]
        if fields["kind"] == kind:
            seen_ms[user] = now_ms
        return fields["action"] == "pay" and seen_ms.get(user, NEVER) >= now_ms - 600_000

    return judge


def _within(number: int) -> Judge:
    low, high = 5 * number, 5 * number + 10
    return lambda fields, _: low <= fields["amount"] <= high


def _since(number: int) -> Judge:
    kind, paid_ms = f"v{number}", dict[str, float]()

    def judge(fields: dict[str, Any], now_ms: float) -> bool:
        user = fields["user"]
        if fields["action"] == "pay":
            paid_ms[user] = now_ms
        elif fields["action"] == "logout":
            paid_ms.pop(user, None)
        return fields["kind"] == kind and paid_ms.get(user, NEVER) >= now_ms - 3_600_000

    return judge


_MIXED = (_pattern, _equality, _keyed, _within, _since)
