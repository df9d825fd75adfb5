"""Rules that compare terms: arithmetic, facts with facts, the time of day, and means of many keys."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Condition, Contestant, Event, ours, race
from tests.bench.measuring.rows import Part, Row, at_most
from tests.reference_panes import pane_us

CASE = "comparing"
RULES = 100
ZONE = "Europe/Berlin"
EVERY_MS = 250
AMOUNTS, LIMITS = 10_000, 1_000
DAY_S = 86_400
AT_MOST = 2.0
"""What a rule may cost over the same by hand."""


class Shape(NamedTuple):
    """Rules of one shape, each from a number, and the same by hand."""

    name: str
    condition: Callable[[int], Condition]
    test: Callable[[int], str]
    """The test of `amount`, `limit`, `price` and `hour`, which is a function."""
    rules: int = RULES


def compare(left: Any, op: str, right: Any) -> Condition:
    """Give a comparison, as JSON."""
    return {"compare": {"left": left, "op": op, "right": right}}


AMOUNT, LIMIT, PRICE = ({"fact": name} for name in ("amount", "limit", "price"))
SHAPES = (
    Shape(
        "a fact with a product",
        lambda k: compare(AMOUNT, "gt", {"mul": [k, LIMIT]}),
        lambda k: f"type(amount) in NUMBERS and type(limit) in NUMBERS and amount > {k}.0 * limit",
    ),
    Shape(
        "a product with a constant",
        lambda k: compare({"mul": [AMOUNT, PRICE]}, "gt", 10_000 * k),
        lambda k: f"type(amount) in NUMBERS and type(price) in NUMBERS and amount * price > {10_000 * k}",
    ),
    Shape(
        "a quotient with a constant",
        lambda k: compare({"div": [AMOUNT, LIMIT]}, "gt", k),
        lambda k: f"type(amount) in NUMBERS and type(limit) in NUMBERS and limit and amount / limit > {k}",
    ),
    Shape(
        "two facts",
        lambda k: compare(AMOUNT, "lt", {"fact": f"limit{k}"}),
        lambda k: (
            f"type(amount) in NUMBERS and type(get('limit{k}')) in NUMBERS and amount < fields['limit{k}']"
        ),
    ),
    Shape(
        "the hour, and a range",
        lambda k: {"all": [compare(AMOUNT, "gt", 200 * k), hour_from(k)]},
        lambda k: f"type(amount) in NUMBERS and amount > {200 * k} and hour(now_ms) >= {k % 24}",
    ),
    Shape("the hour alone", lambda k: hour_from(12 + k), lambda k: f"hour(now_ms) >= {12 + k}", rules=1),
)


def hour_from(k: int) -> Condition:
    """Give the condition that it is some hour, or a later one of the day."""
    return compare({"clock": {"part": "hour", "zone": ZONE}}, "gte", k % 24)


def parts(effort: Effort) -> list[Part]:
    """Give a part for each shape, and one for means of many keys."""
    shapes = [Part(CASE, partial(measure, shape, effort), shape.name) for shape in SHAPES]
    return [*shapes, Part(CASE, partial(measure_means, effort), "means")]


def events_drawn(count: int) -> list[Event]:
    """Give events, four a second."""
    drawn = random.Random(0)
    return [
        (
            {
                "amount": drawn.randrange(AMOUNTS),
                "limit": drawn.randrange(LIMITS),
                "price": drawn.random() * 100,
                **{f"limit{drawn.randrange(40)}": drawn.randrange(AMOUNTS) for _ in range(3)},
            },
            number * EVERY_MS,
            None,
        )
        for number in range(count)
    ]


def floor(tests: Sequence[str]) -> Contestant:
    """One generated function with all rules written out in it, as by hand."""
    lines = [
        "def judge(fields, now_ms):",
        "    fired, get = [], fields.get",
        "    amount, limit, price = get('amount'), get('limit'), get('price')",
        *(f"    if {test}: fired.append({number})" for number, test in enumerate(tests)),
        "    return fired",
    ]
    bound: dict[str, Any] = {"NUMBERS": frozenset({int, float}), "hour": local_hour()}
    exec("\n".join(lines), bound)
    judge = bound["judge"]
    return Contestant("floor", lambda events: [judge(fields, time_ms) for fields, time_ms, _ in events])


def local_hour() -> Callable[[float], int]:
    """Give the function that looks up the hour once a minute."""
    zone, hours = ZoneInfo(ZONE), dict[int, int]()

    def hour(now_ms: float) -> int:
        minute = int(now_ms // 60_000)
        if minute not in hours:
            hours[minute] = datetime.fromtimestamp(minute * 60, zone).hour
        return hours[minute]

    return hour


def measure(shape: Shape, effort: Effort) -> list[Row]:
    """Give the cost of rules of one shape at an event, in microseconds."""
    drawn = random.Random(1)
    numbers = [drawn.randrange(2, 40) for _ in range(shape.rules)]
    contestants = [ours([shape.condition(k) for k in numbers]), floor([shape.test(k) for k in numbers])]
    raced = race(contestants, events_drawn(effort.events), effort)
    rules = f"{shape.rules} rule{'s' if shape.rules > 1 else ''}"
    return [_row(f"{rules} that compare {shape.name}", raced.ratio, raced.cost_s, raced.worst_s)]


def means_by_hand() -> Contestant:
    """A sum and a count for each pane and key."""
    width_ms = pane_us(DAY_S) / 1000
    of_keys: dict[str, dict[int, tuple[float, int]]] = {}

    def judge(fields: dict[str, Any], now_ms: float) -> list[int]:
        panes = of_keys.get(fields["ip"])
        if panes is None:
            panes = of_keys[fields["ip"]] = {}
        oldest = (now_ms - DAY_S * 1000) // width_ms
        added, count = 0.0, 0
        for pane, (its_sum, its_count) in panes.items():
            if pane >= oldest:
                added, count = added + its_sum, count + its_count
        amount, pane = fields["amount"], int(now_ms // width_ms)
        its_sum, its_count = panes.get(pane, (0.0, 0))
        panes[pane] = its_sum + amount, its_count + 1
        return [0] if count and amount > 3 * (added / count) else []

    return Contestant("floor", lambda events: [judge(fields, time_ms) for fields, time_ms, _ in events])


def measure_means(effort: Effort) -> list[Row]:
    """Give an amount over three times the mean before, for each of many keys."""

    def events() -> Iterator[Event]:
        drawn = random.Random(2)
        for number in range(effort.events):
            key = drawn.randrange(effort.keys)
            yield {"ip": f"address {key}", "amount": drawn.randrange(1, 500) / 2}, number * EVERY_MS, None

    mean = {"avg": {"fact": "amount", "window_secs": DAY_S, "earlier": True}}
    rule: Condition = {"keyed": {"inner": compare(AMOUNT, "gt", {"mul": [3, mean]}), "key": "ip"}}
    raced = race([ours([rule]), means_by_hand()], [*events()], effort)
    return [_row(f"a mean of each of {effort.keys} keys", raced.ratio, raced.cost_s, raced.worst_s, 4.0)]


def _row(name: str, ratio: float, cost_s: dict[str, float], worst_s: float, most: float = AT_MOST) -> Row:
    return Row(
        case=CASE,
        name=name,
        unit="µs per event",
        ours=cost_s["ours"] * 1e6,
        worst=worst_s * 1e6,
        floor=cost_s["floor"] * 1e6,
        ratio=ratio,
        over="by hand",
        target=at_most(most, ratio, f"at most {most:.0f}x by hand"),
    )
