"""The executable specification of conditions, time and rules, by quantifying over the whole history.

It keeps every event, derives each answer from them, and shares only the Condition types with the engine.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, assert_never

import re2

from engine.language import condition as terms
from tests.reference_values import among, equal, kind, look_up, scalar


@dataclass(frozen=True)
class Event:
    """What happened, at the time that the detector gave it."""

    time_us: int
    fields: Mapping[str, Any]
    vars: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Give the value of a name, None where it is missing."""
        return look_up(name, self.fields, self.vars)


@cache
def window_us(secs: float) -> int:
    """Give a window, read as its shortest decimal, to the nearest microsecond, half to even."""
    return round(Fraction(repr(secs)) * 1_000_000)


def compared(fact: Any, op: str, value: Any) -> bool:
    """Apply the operator of a leaf or a ref to a fact that is present."""
    match op:
        case "eq" | "neq":
            return equal(fact, value) is (op == "eq")
        case "in" | "nin":
            return among(fact, value) is (op == "in")
        case "contains" if kind(fact) == "string":
            return kind(value) == "string" and value in fact
        case "contains":
            return kind(fact) == "array" and among(value, fact)
        case "matches":
            return kind(fact) == "string" and re2.search(value, fact) is not None
    return kind(fact) == kind(value[0]) and value[0] <= fact <= value[1]


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "eq": operator.eq,
    "neq": operator.ne,
}


def double(value: Any) -> float | None:
    """Give a number as a double. None stands for what is no number, or past a double's range."""
    try:
        return float(value) if kind(value) == "number" else None
    except OverflowError:
        return None


def different(values: Sequence[Any]) -> int:
    """Count values that equal none before them."""
    return sum(not among(value, values[:i]) for i, value in enumerate(values))


def pane_us(secs: float) -> int:
    """Give the width of the panes of a window: 256 of them cover it."""
    return max(1, -(-window_us(secs) // 256))


def added(numbers: Sequence[tuple[int, float]]) -> float:
    """Add numbers with their panes: the panes oldest first, the numbers of a pane in their order."""
    panes: dict[int, float] = {}
    for pane, number in numbers:
        panes[pane] = panes.get(pane, 0.0) + number
    total = 0.0
    for _, pane in sorted(panes.items()):
        total += pane
    return total


def tuples(sent: Any) -> list[list[Any]]:
    """Give the tuples of a relation: none, unless all that was sent has their shape."""
    rows = [[row] if scalar(row) else row for row in sent] if kind(sent) == "array" else []
    return rows if all(kind(row) == "array" and all(map(scalar, row)) for row in rows) else []


def sliced(history: Sequence[Event], key: str) -> list[Event]:
    """Give the events whose key has the value that it has now."""
    return [event for event in history if equal(event[key], history[-1][key])]


FOUND_MAX = 20_000
_found: dict[tuple[int, ...], tuple[list[bool], terms.Condition, Sequence[Event]]] = {}
"""What `verdicts` found, by identity, because Python has `1 == True`. It holds what it is about."""


def verdicts(condition: terms.Condition, history: Sequence[Event]) -> list[bool]:
    """Return the verdict at each event of the history. What is past stays, so only the rest is found."""
    seen = tuple(map(id, history))
    known = len(seen)
    while known and (id(condition), *seen[:known]) not in _found:
        known -= 1
    found = list(_found[id(condition), *seen[:known]][0]) if known else []
    found += [verdict(condition, history[:end]) for end in range(known + 1, len(seen) + 1)]
    if len(_found) >= FOUND_MAX:
        _found.clear()
    _found[id(condition), *seen] = found, condition, tuple(history)
    return found


def verdict(condition: terms.Condition, history: Sequence[Event], at_us: int | None = None) -> bool:
    """Return whether the condition is true at the last event of the history, or later if no event follows.

    Then only time has passed: windows end at `at_us`, and no event was there.
    """
    now, count = history[-1], len(history)

    def ages_us() -> list[int]:
        return [(now.time_us if at_us is None else at_us) - event.time_us for event in history]

    def was(inner: terms.Condition | None) -> list[bool]:
        return [True] * count if inner is None else verdicts(inner, history)

    def young(secs: float | None) -> list[bool]:
        return [secs is None or age <= window_us(secs) for age in ages_us()]

    def panes(secs: float | None) -> tuple[list[int], int]:
        """Give the pane of each event, and the oldest that counts."""
        if secs is None:
            return [0] * count, 0
        oldest = (now.time_us if at_us is None else at_us) - window_us(secs)
        return [e.time_us // pane_us(secs) for e in history], oldest // pane_us(secs)

    match condition:
        case terms.Leaf(fact, op, value):
            return now[fact] is not None and compared(now[fact], op, value)
        case terms.Ref(fact, op, reference):
            fits = kind(now[reference]) == "array" if op in ("in", "nin") else now[reference] is not None
            return fits and now[fact] is not None and compared(now[fact], op, now[reference])
        case terms.InRelation(relation, args):
            values = [now[arg.fact] if isinstance(arg, terms.FactArg) else arg for arg in args]
            return among(values, tuples(now.vars.get(relation)))
        case terms.All(members):
            return all(verdict(member, history, at_us) for member in members)
        case terms.Any(members):
            return any(verdict(member, history, at_us) for member in members)
        case terms.Not(inner):
            return not verdict(inner, history, at_us)
        case terms.Once(inner):
            return any(was(inner))
        case terms.Historically(inner):
            return all(was(inner))
        case terms.Since(left, right):
            held, begun = was(left), was(right)
            return any(begun[i] and all(held[i + 1 :]) for i in range(count))
        case terms.OnceWithin(inner, secs):
            return any(
                true and age <= window_us(secs) for true, age in zip(was(inner), ages_us(), strict=True)
            )
        case terms.HistoricallyFor(inner, secs, "strong"):
            held, ages = was(inner), ages_us()
            return any(all(held[i:]) for i in range(count) if ages[i] >= window_us(secs))
        case terms.HistoricallyFor(inner, secs):
            return all(true or age > window_us(secs) for true, age in zip(was(inner), ages_us(), strict=True))
        case terms.SinceWithin(left, right, secs):
            held, begun, ages = was(left), was(right), ages_us()
            return any(begun[i] and all(held[i + 1 :]) for i in range(count) if ages[i] <= window_us(secs))
        case terms.Keyed(inner, key, where):
            kept = was(where)
            there = [event for event, keep in zip(history, kept, strict=True) if keep]
            return kept[-1] and scalar(now[key]) and verdict(inner, sliced(there, key), at_us)
        case terms.Previous(inner):
            return count > 1 and verdict(inner, history[:-1])
        case terms.Earlier(inner):
            return any(was(inner)[:-1])
        case terms.EarlierWithin(inner, secs):
            return any(
                true and age <= window_us(secs) for true, age in zip(was(inner)[:-1], ages_us(), strict=False)
            )
        case terms.Count(inner, secs, op, value):
            return COMPARISONS[op](sum(map(all, zip(was(inner), young(secs), strict=True))), value)
        case terms.Distinct(fact, where, secs, op, value):
            counts = map(all, zip(was(where), young(secs), strict=True))
            seen = [e[fact] for e, true in zip(history, counts, strict=True) if true and scalar(e[fact])]
            return COMPARISONS[op](different(seen), value)
        case terms.Sum(fact, where, secs, op, value) | terms.Avg(fact, where, secs, op, value):
            pane_of, oldest = panes(secs)
            rows = zip(pane_of, history, was(where), strict=True)
            drawn = [(pane, double(e[fact])) for pane, e, true in rows if true and pane >= oldest]
            numbers = [(pane, number) for pane, number in drawn if number is not None]
            if isinstance(condition, terms.Avg) and not numbers:
                return False
            found = added(numbers) / (len(numbers) if isinstance(condition, terms.Avg) else 1)
            if isinstance(value, terms.ScaledFact):
                fact_now = double(now[value.fact])
                return fact_now is not None and COMPARISONS[op](found, fact_now * float(value.factor))
            return COMPARISONS[op](found, value)
        case _:
            assert_never(condition)


def as_json(part: Any) -> Any:
    """Give a condition as something that `equal` compares as JSON, with nothing filled in."""
    if is_dataclass(part):
        return [type(part).__name__, *(as_json(getattr(part, name)) for name in part.__match_args__)]
    return [as_json(member) for member in part] if isinstance(part, tuple) else part


@dataclass(frozen=True)
class Rule:
    """A rule; `birth` is how many events had been evaluated when its history began."""

    name: str
    condition: terms.Condition
    notify: bool
    priority: int
    birth: int
    enabled: bool = True


class ReferenceDetector:
    """All accepted events in order, and the rules by id. `now_us` is the server's clock, where it has one."""

    def __init__(self, now_us: Callable[[], int] | None = None) -> None:
        self.events, self.rules, self.highest, self.now_us = list[Event](), dict[str, Rule](), 0, now_us

    def add_rule(self, rule_id: str, name: str, condition: terms.Condition, *, notify: bool) -> None:
        self.highest += 1
        self.rules[rule_id] = Rule(name, condition, notify, self.highest, len(self.events))

    def change_rule(self, rule_id: str, **changes: Any) -> None:
        old, new = self.rules[rule_id], replace(self.rules[rule_id], **changes)
        kept = equal(as_json(old.condition), as_json(new.condition)) and (old.enabled or not new.enabled)
        self.rules[rule_id] = new if kept else replace(new, birth=len(self.events))

    def evaluate(self, fields: Any, timestamp_ms: float, sent: Any = None) -> list[tuple[Any, ...]] | None:
        """Give type, id, name, priority, notify of each action in order, or None for a refused event."""
        stamp_us = round(Fraction(repr(timestamp_ms)) * 1_000)
        clock_us = max([stamp_us] + [event.time_us for event in self.events])
        if clock_us - stamp_us > 300_000_000 or (self.now_us and stamp_us - self.now_us() > 60_000_000):
            return None
        self.events.append(Event(clock_us, fields, sent or {}))
        enabled = [(i, rule) for i, rule in self.rules.items() if rule.enabled]
        fired = [(i, r) for i, r in enabled if verdict(r.condition, self.events[r.birth :])]
        return [("notify" if r.notify else "match", i, r.name, r.priority, r.notify) for i, r in fired]
