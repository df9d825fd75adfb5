"""Rules of three leaves on one event: 1, 100 and 1000 of them, all of them tried at each event."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import re2

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Contestant, Event, ours, race
from tests.bench.measuring.rows import Part, Row, Target
from tests.bench.rules.peers import JOINED, ThreeLeaves, of_three_leaves

CASE = "stateless"
AMOUNTS = 10_000
COUNTRIES = tuple(f"C{number}" for number in range(20))
DOMAINS = tuple(f"mail{number}" for number in range(10))


def parts(effort: Effort) -> list[Part]:
    """Return one part for each number of rules."""
    return [Part(CASE, partial(measure, count, effort), f"{count} rules") for count in effort.stateless_rules]


def rules_drawn(count: int) -> list[ThreeLeaves]:
    """Return rules of which each is true for some of the events drawn, about one in 300."""
    drawn = random.Random(count)
    rules = []
    for _ in range(count):
        low = drawn.randrange(AMOUNTS * 9 // 10)
        first, second = drawn.sample(DOMAINS, 2)
        countries = tuple(drawn.sample(COUNTRIES, 3))
        rules.append(ThreeLeaves(low, low + AMOUNTS // 10, countries, f"@({first}|{second})[.]"))
    return rules


def events_drawn(count: int) -> list[Event]:
    """Return events a millisecond apart."""
    drawn = random.Random(0)
    return [
        (
            {
                "amount": drawn.randrange(AMOUNTS),
                "country": drawn.choice(COUNTRIES),
                "email": f"user{drawn.randrange(1_000)}@{drawn.choice(DOMAINS)}.example",
            },
            number,
            None,
        )
        for number in range(count)
    ]


INDEXED_FROM = 1_000
"""From this many rules on, the handwritten code looks them up by country."""


def floor(rules: list[ThreeLeaves]) -> Contestant:
    """One generated function with all rules written out in it, as by hand; of many, one for each country."""
    numbered = list(enumerate(rules))
    if len(rules) < INDEXED_FROM:
        judge = _written_out(numbered)

        def run(events: list[Event]) -> list[Any]:
            return [judge(fields) for fields, _, _ in events]

        return Contestant("floor", run)

    judges = {
        country: _written_out([(number, rule) for number, rule in numbered if country in rule.countries])
        for country in COUNTRIES
    }

    def run_indexed(events: list[Event]) -> list[Any]:
        return [judges[fields["country"]](fields) for fields, _, _ in events]

    return Contestant("floor", run_indexed)


def _written_out(rules: list[tuple[int, ThreeLeaves]]) -> Callable[[dict[str, Any]], list[int]]:
    """Return one function with these rules in it, each under its number."""
    bound: dict[str, Any] = {}
    lines = [
        "def judge(fields):",
        "    fired = []",
        "    amount, country, email = fields['amount'], fields['country'], fields['email']",
    ]
    for number, rule in rules:
        bound[f"among{number}"] = frozenset(rule.countries)
        bound[f"search{number}"] = re2.compile(rule.pattern).search
        test = f"{rule.low} <= amount <= {rule.high} and country in among{number} and search{number}(email)"
        lines.append(f"    if {test}: fired.append({number})")
    exec("\n".join([*lines, "    return fired"]), bound)
    judge: Callable[[dict[str, Any]], list[int]] = bound["judge"]
    return judge


def measure(count: int, effort: Effort) -> list[Row]:
    """Return the cost of a rule at an event, in microseconds, where there are `count` rules."""
    rules = rules_drawn(count)
    peers = of_three_leaves(rules)
    contestants = [ours([rule.text() for rule in rules]), floor(rules), *peers.contestants]
    raced = race(contestants, events_drawn(effort.events), effort)
    cost_us = {name: cost_s * 1e6 / count for name, cost_s in raced.cost_s.items()}
    figures = {peer.name: cost_us[peer.name] for peer in peers.contestants}
    name = f"{count} rule{'s' if count > 1 else ''}"
    target = _target(raced.ratio, cost_us["ours"], figures, led=count >= 100)
    every = {**figures, **peers.absent}
    return [raced.row(CASE, name, "µs per rule and event", each=count, peers=every, target=target)]


def _target(ratio: float, ours_us: float, peers: dict[str, float], *, led: bool) -> Target:
    """Return the target. A single rule pays for its whole event, and needs no lead."""
    if not led or not peers:
        return Target(text="at most 2x floor", met=ratio <= 2)
    lead = min(peers.values()) / ours_us
    lead_alone = min(cost for name, cost in peers.items() if not name.endswith(JOINED)) / ours_us
    text = (
        f"at most 2x floor; 20x ahead of every peer rule by rule (is {lead_alone:.1f}x; {lead:.1f}x joined)"
    )
    return Target(text=text, met=ratio <= 2 and lead_alone >= 20)
