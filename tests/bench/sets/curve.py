"""The cost of an event from one rule to two hundred: each number of rules beside the previous one."""

import gc
import itertools
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
"""How much one number of rules may cost relative to the previous one, unless the rules grew as much."""
USERS = 200
MORE = {"counting": (250, 330, 340, 400, 500), "nested": (240, 260, 400)}
"""More numbers, for rules that become indexed late, and of which most concern most events."""


def equality(number: int) -> str:
    """Return a rule that one value selects."""
    return f'kind == "v{number}" and amount > {number}'


def keyed(number: int) -> str:
    """Return a rule with state for each user."""
    return f'action == "pay" and per user once within 10m kind == "v{number}"'


def within(number: int) -> str:
    """Return a rule that a range of numbers selects."""
    return f"amount between {5 * number} and {5 * number + 10}"


def pattern(number: int) -> str:
    """Return a rule with a regular expression."""
    return f'path matches "/dir{number}/[a-f]+x"'


def since(number: int) -> str:
    """Return a rule with state that expires."""
    return f'kind == "v{number}" and per user ((not action == "logout") since within 1h action == "pay")'


def counting(number: int) -> str:
    """Return a rule that counts under one of five keys, nearly all of which hold a record."""
    key = ("user", "country", "action", "amount", "path")[number % 5]
    return f'per {key} (count(kind == "v{number // 5}") within 1m >= {3 + number % 7})'


def nested(number: int) -> str:
    """Return a rule with a chain of conditions that all events concern, once a user has done something."""
    return f"per user previous (once within 10m (last(amount) > {2 * number}))"


def mixed(number: int) -> str:
    """Return a rule of one of these kinds."""
    return (pattern, equality, keyed, within, since)[number % 5](number)


def after(first: str, number: int) -> str:
    """Return a rule that is the first, or one with an equality."""
    return first if number == 0 else equality(number)


MIXES: dict[str, Callable[[int], str]] = {
    "equality": equality,
    "keyed": keyed,
    "ranges": within,
    "patterns": pattern,
    "since": since,
    "counting": counting,
    "nested": nested,
    "mixed": mixed,
    "equality and one pattern": partial(after, pattern(0)),
    "equality and one relation": partial(after, "allowed(country)"),
}


def parts(effort: Effort) -> list[Part]:
    """Return one part for each mix of rules."""
    return [Part(CASE, partial(measure, name, effort), name) for name in MIXES]


def events(count: int, kinds: int) -> list[Event]:
    """Return events a millisecond apart."""
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
    """Return the cost of an event at each number of rules, and the largest step between two of them."""
    counts = effort.curve_rules
    if counts[-1] >= 200:
        counts += MORE.get(name, ())
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
    steps = []
    for (fewer, fewer_s), (count, count_s) in itertools.pairwise(zip(counts, costs_s, strict=True)):
        ratio = statistics.median(more / less for more, less in zip(count_s, fewer_s, strict=True))
        steps.append((ratio / max(1.0, count / fewer / STEP_MAX), ratio, fewer, count))
    largest, ratio, fewer, count = max(steps)
    target = Target(text=f"at most {STEP_MAX}x, or as many times as the rules", met=largest <= STEP_MAX)
    return [
        Row(
            case=CASE,
            name=name,
            unit="µs per event",
            ours=statistics.median(costs_s[-1]) * 1e6,
            worst=max(costs_s[-1]) * 1e6,
            # The same events with this many rules.
            peers={str(at): statistics.median(at_s) * 1e6 for at, at_s in zip(counts, costs_s, strict=True)},
            ratio=ratio,
            over="the number before",
            target=target,
            tolerance=0.4,
            remark=f"from {fewer} to {count} rules",
        )
    ]
