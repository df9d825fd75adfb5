"""The executable specification of conditions, time and rules, by quantifying over the whole history.

It keeps every event and derives each answer from them. It shares only the Condition types with the engine.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias, assert_never

import re2

from engine.language import condition as terms
from engine.language.terms import is_past, terms_in
from tests import reference_terms
from tests.reference_at_most_once import held_back
from tests.reference_at_most_once import keys as keys_of
from tests.reference_panes import added, double, pane_numbers, window_us
from tests.reference_values import address, among, equal, kind, lies_in, look_up, scalar


@dataclass(frozen=True)
class Event:
    """An event, at the time that the detector gave it."""

    time_us: int
    fields: Mapping[str, Any]
    vars: Mapping[str, Any]
    stored: Mapping[str, Any] = field(default_factory=dict)
    """The tuples of the detector's relations at that time, by name."""

    def __getitem__(self, name: str) -> Any:
        """Return the value of a name; None if it is missing."""
        return look_up(name, self.fields, self.vars)

    def relation(self, name: str) -> list[list[Any]]:
        """Return the tuples sent under a name, or otherwise those stored."""
        return tuples(self.vars[name]) if name in self.vars else self.stored.get(name, [])


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


def different(values: Sequence[Any]) -> int:
    """Count the distinct values."""
    return sum(not among(value, values[:i]) for i, value in enumerate(values))


def tuples(sent: Any) -> list[list[Any]]:
    """Return the tuples of a relation; none unless everything sent has their shape."""
    rows = [[row] if scalar(row) else row for row in sent] if kind(sent) == "array" else []
    return rows if all(kind(row) == "array" and all(map(scalar, row)) for row in rows) else []


def sliced(history: Sequence[Event], key: str) -> list[Event]:
    """Return the events whose key has its current value."""
    return [event for event in history if equal(event[key], history[-1][key])]


def strings_of(value: Any) -> list[str]:
    """Return the strings in a value, at any depth."""
    if kind(value) == "string":
        return [value]
    inside = value.values() if kind(value) == "object" else value if kind(value) == "array" else []
    return [text for each in inside for text in strings_of(each)]


ELEMENTS_MAX = 10_000
"""`some` is false for arrays with more elements than this."""

FOUND_MAX = 20_000
_found: dict[tuple[int, ...], tuple[list[bool], terms.Condition, Sequence[Event]]] = {}
"""The results of `verdicts` by identity, because `1 == True` in Python. The values keep the keys alive."""


def verdicts(condition: terms.Condition, history: Sequence[Event]) -> list[bool]:
    """Return the verdict at each event of the history. Past verdicts stay, so only new ones are computed."""
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

    In the latter case, only time has passed: windows end at `at_us`, but there was no event.
    """
    now, count = history[-1], len(history)
    now_us = now.time_us if at_us is None else at_us

    def was(inner: terms.Condition | None) -> list[bool]:
        return [True] * count if inner is None else verdicts(inner, history)

    def young(secs: float | None, min_secs: float | None = None) -> list[bool]:
        """Return for each event whether it is no older than a window, and at least as old as required."""
        ages = [now_us - event.time_us for event in history]
        most = float("inf") if secs is None else window_us(secs)
        return [window_us(min_secs or 0) <= age <= most for age in ages]

    match condition:
        case terms.Leaf(fact, op, value):
            return now[fact] is not None and compared(now[fact], op, value)
        case terms.Ref(fact, op, reference):
            fits = kind(now[reference]) == "array" if op in ("in", "nin") else now[reference] is not None
            return fits and now[fact] is not None and compared(now[fact], op, now[reference])
        case terms.InRelation(relation, args):
            values = [now[arg.fact] if isinstance(arg, terms.FactArg) else arg for arg in args]
            return among(values, now.relation(relation))
        case terms.InNetwork(fact, networks):
            found = address(now[fact])
            if isinstance(networks, terms.NetworksOf):
                rows = now.relation(networks.relation)
                networks = tuple(row[0] for row in rows if len(row) == 1 and kind(row[0]) == "string")
            return found is not None and lies_in(found, networks)
        case terms.Anywhere(inner):
            strings = strings_of(now.fields)
            return len(strings) <= ELEMENTS_MAX and any(
                verdict(inner, [replace(now, fields={"it": text})], at_us) for text in strings
            )
        case terms.Some(fact, inner):
            elements = now[fact] if kind(now[fact]) == "array" else []
            each = [e if kind(e) == "object" else {"it": e} for e in elements[: ELEMENTS_MAX + 1]]
            inside = [[replace(now, fields=element)] for element in each]
            return len(elements) <= ELEMENTS_MAX and any(verdict(inner, one, at_us) for one in inside)
        case terms.Compare(left, op, right):
            one, other = (reference_terms.value(term, history, now_us, verdicts) for term in (left, right))
            return reference_terms.holds(one, op, other, COMPARISONS[op])
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
        case terms.OnceWithin(inner, secs, min_secs):
            return any(map(all, zip(was(inner), young(secs, min_secs), strict=True)))
        case terms.HistoricallyFor(inner, secs, "strong"):
            held, ages = was(inner), [now_us - event.time_us for event in history]
            return any(all(held[i:]) for i in range(count) if ages[i] >= window_us(secs))
        case terms.HistoricallyFor(inner, secs, _, min_secs):
            return all(
                true or not there for true, there in zip(was(inner), young(secs, min_secs), strict=True)
            )
        case terms.SinceWithin(left, right, secs, min_secs):
            held, begun, there = was(left), was(right), young(secs, min_secs)
            return any(begun[i] and there[i] and all(held[i + 1 :]) for i in range(count))
        case terms.Keyed(inner, key, where):
            kept = was(where)
            there = [event for event, keep in zip(history, kept, strict=True) if keep]
            return kept[-1] and scalar(now[key]) and verdict(inner, sliced(there, key), at_us)
        case terms.Previous(inner):
            return count > 1 and verdict(inner, history[:-1])
        case terms.Earlier(inner):
            return any(was(inner)[:-1])
        case terms.EarlierWithin(inner, secs, min_secs):
            return any(map(all, zip(was(inner)[:-1], young(secs, min_secs), strict=False)))
        case terms.Count(inner, secs, op, value):
            return COMPARISONS[op](sum(map(all, zip(was(inner), young(secs), strict=True))), value)
        case terms.CountSince(inner, reset, op, value):
            again = was(reset)
            first = max((i + 1 for i in range(count) if again[i]), default=0)
            return COMPARISONS[op](sum(was(inner)[first:]), value)
        case terms.Distinct(fact, where, secs, op, value):
            counts = map(all, zip(was(where), young(secs), strict=True))
            seen = [e[fact] for e, true in zip(history, counts, strict=True) if true and scalar(e[fact])]
            return COMPARISONS[op](different(seen), value)
        case terms.Sum(fact, where, secs, op, value) | terms.Avg(fact, where, secs, op, value):
            rows = pane_numbers(history, was(where), secs, now_us)
            drawn = [(pane, double(e[fact])) for pane, e in rows]
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
    """Return a condition as a value that `equal` compares like JSON, without defaults."""
    if is_dataclass(part):
        return [type(part).__name__, *(as_json(getattr(part, name)) for name in part.__match_args__)]
    return [as_json(member) for member in part] if isinstance(part, tuple) else part


Part: TypeAlias = tuple[Any, terms.Keys]
"""A part that keeps its history as a whole, or begins anew, with the keys around it: an outermost member or
term that looks back, or the `where` of a key if it does."""


def parts(condition: terms.Condition, keys: terms.Keys = ()) -> Iterator[Part]:
    """Yield the parts of a condition."""
    match condition:
        case terms.Keyed(inner, _, where):
            if where is not None and any(parts(where)):
                yield condition.step, keys
            yield from parts(inner, (*keys, condition.step))
        case terms.Compare(left, _, right):
            all_terms = (*terms_in(left), *terms_in(right))
            yield from ((term, keys) for term in all_terms if is_past(type(term)))
        case terms.All() | terms.Any() | terms.Not():
            for member in terms.children(condition):
                yield from parts(member, keys)
        case _ if not isinstance(condition, terms.Predicate):
            yield condition, keys


def serves(old: Any, new: Any) -> bool:
    """Return whether the state of a part suffices for one that differs from it in bounds."""

    def same(*bounds: str) -> bool:
        names = [name for name in new.__match_args__ if name not in bounds]
        return type(old) is type(new) and all(getattr(old, name) == getattr(new, name) for name in names)

    def window(part: Any) -> float:
        return float("inf") if part.window_secs is None else window_us(part.window_secs)

    def needed(part: Any) -> int:
        return max(1, part.value + (part.op not in ("gte", "lt")))

    match new:
        case terms.Count() | terms.Distinct():
            alike = same("window_secs", "op", "value")
            return alike and window(new) <= window(old) and needed(new) <= needed(old)
        case terms.CountSince():
            return same("op", "value") and needed(new) <= needed(old)
        case terms.Sum() | terms.Avg():
            return same("op", "value")
        case terms.HistoricallyFor(_, _, "strong"):
            return same("window_secs") and window(old) > 0
        case terms.OnceWithin() | terms.EarlierWithin() | terms.SinceWithin() | terms.HistoricallyFor():
            if not same("window_secs", "min_secs"):
                return False
            least, most = (window_us(part.min_secs or 0) for part in (new, old))
            # Of three events, the middle one may be dropped if the others are no further apart.
            is_apart = window(new) - least >= window(old) - most if least else not most
            return is_apart and least <= most and window(new) <= window(old)
    return False


@dataclass(frozen=True)
class Rule:
    """A rule. `birth` is the number of events evaluated before its history began.

    `kept` has the parts whose histories began earlier, because a change of the condition kept them.
    """

    name: str
    condition: terms.Condition
    notify: bool
    priority: int
    birth: int
    enabled: bool = True
    every_secs: float | None = None
    every_by: Sequence[str] | None = field(default=None, hash=False)
    anew: int = 0
    """The number of events evaluated before its actions began anew."""
    kept: Mapping[Part, int] = field(default_factory=dict, hash=False)
    timed: bool = False
    timed_from: int = 0
    """The number of events evaluated before it began to wait for slices."""

    def keeping(self, old: "Rule") -> "Rule":
        """Return the rule with the histories that it keeps from the previous rule."""
        before = {part: old.kept.get(part, old.birth) for part in parts(old.condition)}
        kept: dict[Part, int] = {}
        for node, keys in parts(self.condition):
            able = [birth for (one, around), birth in before.items() if around == keys and serves(one, node)]
            if (node, keys) in before:
                kept[node, keys] = before[node, keys]
            elif able:
                kept[node, keys] = min(able)
        return replace(self, kept=kept)

    def acts(self, events: Sequence[Event]) -> int | None:
        """Return how many actions were suppressed before that of the last event, where the rule is true."""
        if not self.every_secs:
            return 0
        ends = range(self.anew + 1, len(events) + 1)
        fired = [events[end - 1] for end in ends if self.is_true(events[:end])]
        return held_back(fired, self.condition, self.every_secs, self.every_by)

    def asked(self) -> tuple[Any, ...]:
        """Return what its actions depend on, apart from its condition."""
        return self.enabled, self.every_secs, self.every_by

    def is_true(self, events: Sequence[Event]) -> bool:
        """Return whether the rule is true at the last of all events."""
        return (
            self._verdict(self.condition, (), events, events)
            if self.kept
            else verdict(self.condition, events[self.birth :])
        )

    def seen_by(
        self, part: Any, keys: terms.Keys, history: Sequence[Event], events: Sequence[Event]
    ) -> Sequence[Event]:
        """Return the events of a history since the birth of a part."""
        young = {*map(id, events[self.kept.get((part, keys), self.birth) :])}
        return [event for event in history if id(event) in young]

    def _verdict(
        self, condition: terms.Condition, keys: terms.Keys, history: Sequence[Event], events: Sequence[Event]
    ) -> bool:
        """Return the verdict of a condition around parts. Each part sees the history since its own birth."""

        def seen_by(part: Any, history: Sequence[Event]) -> Sequence[Event]:
            return self.seen_by(part, keys, history, events)

        now = history[-1]
        match condition:
            case terms.All(members):
                return all(self._verdict(member, keys, history, events) for member in members)
            case terms.Any(members):
                return any(self._verdict(member, keys, history, events) for member in members)
            case terms.Not(inner):
                return not self._verdict(inner, keys, history, events)
            case terms.Compare(left, op, right):

                def seen_by_term(term: Any, history: Sequence[Event]) -> Sequence[Event]:
                    return seen_by(term, history) if is_past(type(term)) else history

                values = [
                    reference_terms.value(term, history, now.time_us, verdicts, seen_by_term)
                    for term in (left, right)
                ]
                return reference_terms.holds(values[0], op, values[1], COMPARISONS[op])
            case terms.Keyed(inner, key, where):
                if where is not None:
                    seen = seen_by(condition.step, history) if any(parts(where)) else history
                    history = [e for e, true in zip(seen, verdicts(where, seen), strict=True) if true]
                if not scalar(now[key]) or not history or history[-1] is not now:
                    return False
                return self._verdict(inner, (*keys, condition.step), sliced(history, key), events)
        is_part = not isinstance(condition, terms.Predicate)
        return verdict(condition, seen_by(condition, history) if is_part else history)


class ReferenceDetector:
    """All accepted events in order, and the rules by id. `now_us` is the server's clock, if it has one."""

    def __init__(self, now_us: Callable[[], int] | None = None) -> None:
        self.events, self.rules, self.highest, self.now_us = list[Event](), dict[str, Rule](), 0, now_us
        self.relations = dict[str, list[list[Any]]]()
        self.ticked_us: int | None = None

    def add_rule(
        self, rule_id: str, name: str, condition: terms.Condition, *, notify: bool, timed: bool = False
    ) -> None:
        self.highest += 1
        birth = len(self.events)
        self.rules[rule_id] = Rule(
            name, condition, notify, self.highest, birth, timed=timed, timed_from=birth
        )

    def change_rule(self, rule_id: str, history: str | None = None, **changes: Any) -> None:
        if changes.get("every_secs") == 0:
            changes = {**changes, "every_secs": None, "every_by": None}
        old, new = self.rules[rule_id], replace(self.rules[rule_id], **changes)
        same = equal(as_json(old.condition), as_json(new.condition))
        if not same or old.asked() != new.asked():
            new = replace(new, anew=len(self.events))
        kept = same and (old.enabled or not new.enabled)
        begun = replace(new, birth=len(self.events), kept={})
        if history == "keep" and old.enabled and new.enabled:
            begun = begun.keeping(old)
        begun = new if kept else begun
        goes_on = kept or (begun.kept and {*keys_of(old.condition)} == {*keys_of(new.condition)})
        if not goes_on or (new.timed and not old.timed):
            begun = replace(begun, timed_from=len(self.events))
        self.rules[rule_id] = begun

    def put_relation(self, name: str, given: Sequence[Any]) -> None:
        self.relations[name] = [list(row) if kind(row) == "array" else [row] for row in given]

    def change_relation(self, name: str, add: Sequence[Any], remove: Sequence[Any]) -> None:
        going, coming = ([row if kind(row) == "array" else [row] for row in rows] for rows in (remove, add))
        left = [row for row in self.relations[name] if not among(row, going)]
        self.relations[name] = left + [row for row in coming if not among(row, left)]

    @property
    def clock_us(self) -> list[int]:
        """Return the time of the last event or tick, if there was one."""
        times = [event.time_us for event in self.events] + [self.ticked_us] * (self.ticked_us is not None)
        return [max(times)] if times else []

    def evaluate(self, fields: Any, timestamp_ms: float, sent: Any = None) -> list[tuple[Any, ...]] | None:
        """Return type, id, name, priority, notify of each action in order, or None for a refused event.

        Also return the number of previously suppressed actions, if there were any.
        """
        stamp_us = round(Fraction(repr(timestamp_ms)) * 1_000)
        clock_us = max([stamp_us, *self.clock_us])
        if clock_us - stamp_us > 300_000_000 or (self.now_us and stamp_us - self.now_us() > 60_000_000):
            return None
        self.events.append(Event(clock_us, fields, sent or {}, dict(self.relations)))
        enabled = [(i, rule) for i, rule in self.rules.items() if rule.enabled]
        fired = [(i, r) for i, r in enabled if r.is_true(self.events)]
        acting = [(i, r, r.acts(self.events)) for i, r in fired]
        return [
            ("notify" if r.notify else "match", i, r.name, r.priority, r.notify, *[held][: held > 0])
            for i, r, held in acting
            if held is not None
        ]
