"""The cost of an event from one rule to two hundred: each number of rules beside the one before."""

import gc
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Contestant, Event, ours
from tests.bench.measuring.rows import Part, Row, Target

CASE = "curve"
STEP_MAX = 1.6
"""What one number of rules may cost over the one before, unless the rules have grown as much."""
USERS = 200
COUNTING_MORE = (250, 330, 340, 400, 500)
"""Further numbers of rules that count: they become indexed late, and most of them concern most events."""


def equality(number: int) -> str:
    """Give a rule that one value selects."""
    return f'kind == "v{number}" and amount > {number}'


def keyed(number: int) -> str:
    """Give a rule with a memory for each user."""
    return f'action == "pay" and per user once within 10m kind == "v{number}"'


def within(number: int) -> str:
    """Give a rule that a range of numbers selects."""
    return f"amount between {5 * number} and {5 * number + 10}"


def pattern(number: int) -> str:
    """Give a rule with a regular expression."""
    return f'path matches "/dir{number}/[a-f]+x"'


def since(number: int) -> str:
    """Give a rule with a memory that ends."""
    return f'kind == "v{number}" and per user ((not action == "logout") since within 1h action == "pay")'


def counting(number: int) -> str:
    """Give a rule that counts under one of five keys, nearly all of which hold a record."""
    key = ("user", "country", "action", "amount", "path")[number % 5]
    return f'per {key} (count(kind == "v{number // 5}") within 1m >= {3 + number % 7})'


def mixed(number: int) -> str:
    """Give a rule of one of these kinds."""
    return (pattern, equality, keyed, within, since)[number % 5](number)


def after(first: str, number: int) -> str:
    """Give a rule that is the first, or one with an equality."""
    return first if number == 0 else equality(number)


MIXES: dict[str, Callable[[int], str]] = {
    "equality": equality,
    "keyed": keyed,
    "ranges": within,
    "patterns": pattern,
    "since": since,
    "counting": counting,
    "mixed": mixed,
    "equality and one pattern": partial(after, pattern(0)),
    "equality and one relation": partial(after, "allowed(country)"),
}


def parts(effort: Effort) -> list[Part]:
    """Give one part for each mix of rules."""
    return [Part(CASE, partial(measure, name, effort), name) for name in MIXES]


def name_of(mix: str, count: int) -> str:
    """Give the name of the row of a mix of this many rules."""
    return f"{mix}, {count} rules"


def largest_step_of(mix: str) -> str:
    """Give the name of the row of a mix's largest step."""
    return f"{mix}, the largest step"


def events(count: int, kinds: int) -> list[Event]:
    """Give events a millisecond apart."""
    drawn = random.Random(kinds)
    return [
        (
            {
                "kind": f"v{drawn.randrange(kinds)}",
                "action": drawn.choice(("pay", "login", "logout", "view")),
                "amount": drawn.randrange(1_000),
                "user": f"u{drawn.randrange(USERS)}",
                "country": drawn.choice(("DE", "FR")),
                "path": f"/home/dir{drawn.randrange(kinds)}/abcdex",
            },
            number,
            None,
        )
        for number in range(count)
    ]


def measure(name: str, effort: Effort) -> list[Row]:
    """Give the cost of an event at each number of rules, and the largest step between two of them."""
    counts = effort.curve_rules
    if name == "counting" and counts[-1] >= 200:
        counts += COUNTING_MORE
    size = max(1, effort.pass_events_max // 6)
    runs: list[tuple[Contestant, list[Event]]] = []
    for count in counts:
        contestant = ours([MIXES[name](number) for number in range(count)])
        happened = events((effort.passes + 1) * size, max(10, count))
        contestant.run(happened[:size])
        runs.append((contestant, happened))
    costs_s: list[list[float]] = [[] for _ in counts]
    for number in range(1, effort.passes + 1):
        gc.collect()
        for (contestant, happened), of_count in zip(runs, costs_s, strict=True):
            portion = happened[number * size : (number + 1) * size]
            started_s = time.perf_counter()
            contestant.run(portion)
            of_count.append((time.perf_counter() - started_s) / size)
    rows = []
    steps = []
    for place, count in enumerate(counts):
        before = max(0, place - 1)
        ratio = statistics.median(a / b for a, b in zip(costs_s[place], costs_s[before], strict=True))
        steps.append((ratio / max(1.0, count / counts[before] / STEP_MAX), ratio, counts[before], count))
        rows.append(
            Row(
                case=CASE,
                name=name_of(name, count),
                unit="µs per event",
                ours=statistics.median(costs_s[place]) * 1e6,
                worst=max(costs_s[place]) * 1e6,
                ratio=ratio,
                over=f"{counts[before]} rules",
                tolerance=0.4,
            )
        )
    largest, ratio, fewer, count = max(steps)
    rows.append(
        Row(
            case=CASE,
            name=largest_step_of(name),
            unit="times the cost of fewer rules",
            ours=ratio,
            ratio=ratio,
            over="the number before",
            target=Target(
                text=f"at most {STEP_MAX}x, or as many times as the rules",
                met=largest <= STEP_MAX,
            ),
            tolerance=0.4,
            remark=f"from {fewer} to {count} rules",
        )
    )
    return rows
