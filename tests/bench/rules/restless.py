"""Rules that never sleep: nearly every event makes what they remember move, though few can fire.

`historically for 5m (cpu_i between …)` is broken by every event without `cpu_i`, and what is asked for by
`once within 10m not x_i == 1` is seen anew at every event without `x_i`. An engine that visits each such rule
at each event slows with their number. Events come in runs of one type, far enough apart that all kinds of
rules are true sometimes.
"""

import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Condition, Contestant, Event, ours, race
from tests.bench.measuring.rows import Part, Row, at_most

CASE = "restless"
KINDS = ("weak", "strong", "once not")
USERS = 20
RUN_EVENTS = 4
STEP_MS = 120_000
PAUSE_MS = 660_000
HELD_MS, WITHIN_MS = 300_000, 600_000
CPU_MAX = 90
NEVER = float("-inf")


def parts(effort: Effort) -> list[Part]:
    """Give a part for rules without and one for rules with a key."""
    return [
        Part(CASE, partial(measure, keyed, effort), "keyed" if keyed else "unkeyed")
        for keyed in (False, True)
    ]


def condition(number: int, *, keyed: bool) -> str:
    """Give a rule of a type of its own. Its kind follows from its number."""
    match KINDS[number % len(KINDS)]:
        case "weak":
            past = f"historically for 5m (cpu_{number} between 0 and {CPU_MAX})"
        case "strong":
            past = f"historically for 5m strong (cpu_{number} between 0 and {CPU_MAX})"
        case _:
            past = f"once within 10m (not x_{number} == 1)"
    return f'type == "v{number}" and {"per user " if keyed else ""}({past})'


def events_drawn(rules: int, count: int) -> list[Event]:
    """Give runs of events of one type and user, of which now and then one breaks what has held."""
    drawn = random.Random(rules)
    events: list[Event] = []
    time_ms = 0.0
    while len(events) < count:
        number, user = drawn.randrange(rules), f"user{drawn.randrange(USERS)}"
        for _ in range(RUN_EVENTS):
            cpu = drawn.choice((10, 50, 80, CPU_MAX, CPU_MAX + 5))
            fields = {"type": f"v{number}", "number": number, "user": user, f"cpu_{number}": cpu}
            fields[f"x_{number}"] = int(drawn.random() < 0.8)
            events.append((fields, time_ms, None))
            time_ms += STEP_MS
        time_ms += PAUSE_MS
    return events[:count]


@dataclass(slots=True)
class Past:
    """What a hand-written judge keeps of one history: only the present run of events of one type matters."""

    number: int = -1
    latest_ms: float = NEVER
    other_ms: float = NEVER
    """The latest event of another type than the present run's: there, all of this type's operands failed."""
    broken_ms: float = NEVER
    """The latest event of the present run where `cpu` was too high."""
    held_since_ms: float | None = None
    seen_ms: dict[int, float] = field(default_factory=dict)

    def observe(self, number: int, fields: dict[str, Any], time_ms: float) -> list[int]:
        """Judge an event by hand."""
        if number != self.number:
            self.number, self.other_ms = number, self.latest_ms
            self.broken_ms, self.held_since_ms = NEVER, None
            self.seen_ms.clear()
        self.latest_ms = time_ms
        if fields[f"cpu_{number}"] > CPU_MAX:
            self.broken_ms, self.held_since_ms = time_ms, None
        elif self.held_since_ms is None:
            self.held_since_ms = time_ms
        if fields[f"x_{number}"] != 1:
            self.seen_ms[number] = time_ms
        match KINDS[number % len(KINDS)]:
            case "weak":
                true = max(self.broken_ms, self.other_ms) < time_ms - HELD_MS
            case "strong":
                true = self.held_since_ms is not None and self.held_since_ms <= time_ms - HELD_MS
            case _:
                true = max(self.seen_ms.get(number, NEVER), self.other_ms) >= time_ms - WITHIN_MS
        return [number] if true else []


def floor(*, keyed: bool) -> Contestant:
    """One past for all rules, or one for each user: none needs a visit at events of another type."""
    pasts: dict[str, Past] = {}

    def run(events: list[Event]) -> list[Any]:
        answers = []
        for fields, time_ms, _ in events:
            key = fields["user"] if keyed else ""
            past = pasts.get(key)
            if past is None:
                past = pasts[key] = Past()
            answers.append(past.observe(fields["number"], fields, time_ms))
        return answers

    return Contestant("floor", run)


def measure(keyed: bool, effort: Effort) -> list[Row]:
    """Give the cost of an event at each number of rules, and how much it grows with them."""
    kind = "keyed" if keyed else "unkeyed"
    raced = {}
    for count in effort.restless_rules:
        conditions: list[Condition] = [condition(number, keyed=keyed) for number in range(count)]
        contestants = [ours(conditions), floor(keyed=keyed)]
        raced[count] = race(contestants, events_drawn(count, effort.events), effort)
    rows = [
        Row(
            case=CASE,
            name=f"{kind}, {count} rules",
            unit="µs per event",
            ours=each.cost_s["ours"] * 1e6,
            worst=each.worst_s * 1e6,
            floor=each.cost_s["floor"] * 1e6,
            ratio=each.ratio,
            remark=f"{each.events['ours']} events, {each.fired['ours']} firings",
        )
        for count, each in raced.items()
    ]
    few, many = min(raced), max(raced)
    growth = raced[many].cost_s["ours"] / raced[few].cost_s["ours"]
    return [
        *rows,
        Row(
            case=CASE,
            name=f"{kind}, {many} rules over {few}",
            unit="times the cost",
            ours=growth,
            floor=raced[many].cost_s["floor"] / raced[few].cost_s["floor"],
            ratio=growth,
            over=f"{few} rules",
            target=at_most(2, growth, "at most 2x: no growth"),
        ),
    ]
