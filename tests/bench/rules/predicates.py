"""Predicates on texts, addresses and elements: a thousand on one fact, and `some` over ten elements.

A thousand must cost one pass, not a thousand. So they are held to what ten of them cost: each by itself, they
would cost a hundred times as much. The floor is one pass by hand, which does nothing else: a call of a set of
RE2, or a look-up in a dict for each length. An index over rules of any kind adds some microseconds to it.
"""

import random
from collections.abc import Callable
from functools import partial
from ipaddress import ip_network
from typing import Any

import re2

from engine import Detector
from engine.language.text.sugar import pattern_of
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Contestant, Event, batches, fed, race
from tests.bench.measuring.rows import Part, Row, at_most

CASE = "predicates"
RULES = 1_000
FEW_RULES = 10
GROWTH_MAX = 10.0
"""How many times as much a thousand may cost as ten: a tenth of what each by itself would."""
ELEMENTS = 10
LOOP_MAX = 3.0
"""What `some` may cost over a loop by hand."""

WORDS = {
    "icontains": "dir{}-Part",
    "iendswith": "File{}.exe",
    "like": "*dir{0}-*file{0}.ex?",
    "startswith": "/usr/dir{}-",
    "endswith": "/file{}.EXE",
}


def parts(effort: Effort) -> list[Part]:
    """Give one part for each word, one for networks, and one for `some`."""
    measures = {word: partial(measure_word, word) for word in WORDS}
    measures |= {"in network": measure_networks, "some": measure_some}
    return [Part(CASE, partial(measure, effort), name) for name, measure in measures.items()]


def measure_word(word: str, effort: Effort) -> list[Row]:
    """Give the cost of an event where a thousand rules ask a fact for texts."""
    texts = [WORDS[word].format(number) for number in range(RULES)]
    events: list[Event] = [
        ({"path": f"/usr/dir{number}-part/x/file{number}.EXE"}, place, None)
        for place, number in enumerate(_numbers(effort.events))
    ]
    rules = [f'path {word} "{text}"' for text in texts]
    return [_thousand(word, rules, _by_hand(_pass_for(word, texts)), events, effort)]


def _pass_for(word: str, texts: list[str]) -> Callable[[dict[str, Any]], list[int]]:
    """Give one pass by hand that finds those of the texts which a fact has at an end, or anywhere."""
    if word in ("icontains", "like"):
        options = re2.Options()
        options.max_mem = 256 * 1024 * 1024
        patterns = re2.Set.SearchSet(options)
        for text in texts:
            patterns.Add(pattern_of(word, text))
        patterns.Compile()
        return lambda fields: patterns.Match(fields["path"]) or []
    tables: dict[int, dict[str, int]] = {}
    for number, text in enumerate(texts):
        tables.setdefault(len(text), {})[text.lower() if word == "iendswith" else text] = number
    by_length = list(tables.items())

    def begins(fields: dict[str, Any]) -> list[int]:
        path = fields["path"]
        return [number for length, table in by_length if (number := table.get(path[:length])) is not None]

    def ends(fields: dict[str, Any]) -> list[int]:
        path = fields["path"]
        return [number for length, table in by_length if (number := table.get(path[-length:])) is not None]

    def ends_in_lower_case(fields: dict[str, Any]) -> list[int]:
        path = fields["path"].lower()
        return [number for length, table in by_length if (number := table.get(path[-length:])) is not None]

    return {"startswith": begins, "endswith": ends, "iendswith": ends_in_lower_case}[word]


def measure_networks(effort: Effort) -> list[Row]:
    """Give the same where they ask for networks; by hand, a table for each length of a prefix."""
    networks = [
        ip_network(f"10.{number % 250}.{number // 250}.0/{24 + number % 3}") for number in range(RULES)
    ]
    events: list[Event] = [
        ({"ip": f"10.{number % 256}.{number % 5}.{number % 70}"}, place, None)
        for place, number in enumerate(_numbers(effort.events))
    ]
    tables: dict[int, dict[int, list[int]]] = {}
    for number, network in enumerate(networks):
        shift = 32 - network.prefixlen
        tables.setdefault(shift, {}).setdefault(int(network.network_address) >> shift, []).append(number)

    def judge(fields: dict[str, Any]) -> list[int]:
        first, second, third, fourth = map(int, fields["ip"].split("."))
        address = first << 24 | second << 16 | third << 8 | fourth
        return [number for shift, table in tables.items() for number in table.get(address >> shift, ())]

    rules = [f'ip in network "{network}"' for network in networks]
    return [_thousand("in network", rules, _by_hand(judge), events, effort)]


def measure_some(effort: Effort) -> list[Row]:
    """Give the cost of `some` over ten elements of events that are JSON; by hand, a loop."""
    events: list[Event] = [
        ({"files": [{"name": f"f{number % 997}", "size": place} for place in range(ELEMENTS)]}, at, None)
        for at, number in enumerate(_numbers(effort.events))
    ]

    def judge(fields: dict[str, Any]) -> list[int]:
        files = fields.get("files")
        if type(files) is list:
            for each in files:
                if type(each) is dict and each.get("name") == "f5":
                    size = each.get("size")
                    if type(size) in (int, float) and size > 2:
                        return [0]
        return []

    raced = race([_of_json(['some files (name == "f5" and size > 2)']), _by_hand(judge)], events, effort)
    return [
        Row(
            case=CASE,
            name=f"some over {ELEMENTS}",
            unit="µs per event",
            ours=raced.cost_s["ours"] * 1e6,
            worst=raced.worst_s * 1e6,
            floor=raced.cost_s["floor"] * 1e6,
            ratio=raced.ratio,
            over="a loop by hand",
            target=at_most(LOOP_MAX, raced.ratio, f"at most {LOOP_MAX:g}x a loop by hand"),
        )
    ]


def _thousand(word: str, rules: list[str], floor: Contestant, events: list[Event], effort: Effort) -> Row:
    few = _of_json(rules[:FEW_RULES])
    few_cost_s = race([few], events, effort).cost_s["ours"]
    raced = race([_of_json(rules), floor], events, effort)
    growth = raced.cost_s["ours"] / few_cost_s
    return Row(
        case=CASE,
        name=f"{RULES} {word}",
        unit="µs per event",
        ours=raced.cost_s["ours"] * 1e6,
        worst=raced.worst_s * 1e6,
        floor=raced.cost_s["floor"] * 1e6,
        peers={f"{FEW_RULES} such": few_cost_s * 1e6},
        ratio=raced.ratio,
        over="one pass by hand",
        target=at_most(
            GROWTH_MAX, growth, f"at most {GROWTH_MAX:g}x what {FEW_RULES} cost (is {growth:.1f}x)"
        ),
    )


def _of_json(rules: list[str]) -> Contestant:
    """Give the engine with these rules, fed with events that were JSON."""
    detector = Detector()
    for number, rule in enumerate(rules):
        detector.add_rule(f"rule {number}", rule)

    def run(events: list[Event]) -> list[Any]:
        answers: list[Any] = []
        for batch in batches(events):
            answers += detector.submit_clean(batch).fired
            detector.forget_lookups()
        return answers

    return Contestant("ours", run, fed(detector).verdicts)


def _by_hand(judge: Callable[[dict[str, Any]], list[int]]) -> Contestant:
    return Contestant("floor", lambda events: [judge(fields) for fields, _, _ in events])


def _numbers(count: int) -> list[int]:
    drawn = random.Random(count)
    return [drawn.randrange(3 * RULES) for _ in range(count)]
