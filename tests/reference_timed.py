"""The executable specification of firings by time: it tries every time at which a verdict could turn."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from engine.language import condition as terms
from engine.language import terms as values
from engine.language.terms import is_past, terms_in
from tests.reference import Event, Rule, parts, verdicts
from tests.reference_panes import double, pane_us, window_us
from tests.reference_values import equal, kind, scalar

MINUTE_US = 60_000_000
BOOLEAN = terms.All | terms.Any | terms.Not | terms.Keyed
Keys = Mapping[str, Any]


class ByTime(NamedTuple):
    """A rule fires by time, for the values of its keys, by name."""

    time_us: int
    rule_id: str
    keys: tuple[tuple[str, Any], ...]


def keys_of(condition: terms.Condition) -> list[str]:
    """Return the keys of a rule: the names of the `per` with only boolean members around them."""
    own = [condition.key] if isinstance(condition, terms.Keyed) else []
    inside = terms.children(condition) if isinstance(condition, BOOLEAN) else ()
    return [*dict.fromkeys([*own, *(name for child in inside for name in keys_of(child))])]


def key_event(keys: Keys, time_us: int, stored: Mapping[str, Any]) -> Event:
    """Return the event that has only these keys."""
    fields = {name: value for name, value in keys.items() if name[0] != "$"}
    sent = {name[1:]: value for name, value in keys.items() if name[0] == "$"}
    return Event(time_us, fields, sent, stored)


# -- when a slice is live -----------------------------------------------------------------------------------


def counted_by_panes(history: Sequence[Event], true: Sequence[bool], secs: float | None, at_us: int) -> bool:
    """Return whether the pane of an event at which it was true can still count."""
    if secs is None:
        return any(true)
    width_us = pane_us(secs)
    ends = [(event.time_us // width_us + 1) * width_us - 1 for event in history]
    return any(counts and at_us <= end + window_us(secs) for counts, end in zip(true, ends, strict=True))


def remembers(part: Any, history: Sequence[Event], at_us: int) -> bool:
    """Return whether the state of a part, a member or term, could matter to an event at that time."""
    count = len(history)
    if not count:
        return False

    def was(inner: Any) -> list[bool]:
        return [True] * count if inner is None else verdicts(inner, history)

    def young(true: Sequence[bool], secs: float | None) -> list[bool]:
        most = float("inf") if secs is None else window_us(secs)
        return [one and at_us - event.time_us <= most for one, event in zip(true, history, strict=True)]

    def numbers(part: Any) -> list[bool]:
        true = zip(was(part.where), history, strict=True)
        return [one and double(event[part.fact]) is not None for one, event in true]

    def scalars(part: Any) -> list[bool]:
        return [one and scalar(e[part.fact]) for one, e in zip(was(part.where), history, strict=True)]

    def held(part: Any) -> list[bool]:
        left, right = was(part.left), was(part.right)
        return [right[i] and all(left[i + 1 :]) for i in range(count)]

    match part:
        case terms.Once(inner) | terms.Earlier(inner):
            return any(was(inner))
        case terms.Historically(inner):
            return not all(was(inner))
        case terms.OnceWithin(inner, secs) | terms.EarlierWithin(inner, secs):
            return any(young(was(inner), secs))
        case terms.HistoricallyFor(inner, secs, "strong"):
            return was(inner)[-1] and window_us(secs) > 0
        case terms.HistoricallyFor(inner, secs):
            return any(young([not true for true in was(inner)], secs))
        case terms.Since():
            return any(held(part))
        case terms.SinceWithin():
            return any(young(held(part), part.window_secs))
        case terms.Previous(inner):
            return was(inner)[-1]
        case terms.Count(inner, secs):
            return any(young(was(inner), secs))
        case terms.CountSince(inner, reset):
            again = was(reset)
            return any(was(inner)[max((i + 1 for i in range(count) if again[i]), default=0) :])
        case terms.Distinct():
            return any(young(scalars(part), part.window_secs))
        case (
            terms.Sum()
            | terms.Avg()
            | values.SumTerm()
            | values.AvgTerm()
            | values.MinTerm()
            | values.MaxTerm()
        ):
            return counted_by_panes(history, numbers(part), part.window_secs, at_us)
        case values.CountTerm(inner, secs):
            return counted_by_panes(history, was(inner), secs, at_us)
        case values.Age(inner):
            return any(was(inner))
        case values.Last():
            return any(scalars(part))
        case values.Prev(fact):
            return scalar(history[-1][fact])
    raise AssertionError(part)


Seen = Callable[[Any, terms.Keys, Sequence[Event]], Sequence[Event]]
"""Returns the events of a history that a part under keys sees."""


def all_seen(_: Any, __: terms.Keys, history: Sequence[Event]) -> Sequence[Event]:
    """Let everything inside a part see all that the part sees."""
    return history


def is_live(
    condition: terms.Condition,
    keys: Keys,
    history: Sequence[Event],
    at_us: int,
    *,
    seen: Seen,
    around: terms.Keys = (),
) -> bool:
    """Return whether a slice of these keys has state that could matter to an event at that time."""

    def inside(part: Any, conditions: Iterable[terms.Condition]) -> bool:
        visible = seen(part, around, history)
        return any(is_live(each, keys, visible, at_us, seen=all_seen, around=around) for each in conditions)

    match condition:
        case terms.Keyed(inner, key, where):
            there = history
            if where is not None:
                looks_back = any(parts(where))
                there = seen(condition.step, around, history) if looks_back else history
                inner_seen = all_seen if looks_back else seen
                if is_live(where, keys, there, at_us, seen=inner_seen, around=around):
                    return True
                kept = verdicts(where, there)
                there = [event for event, true in zip(there, kept, strict=True) if true]
            if key not in keys:
                return False
            mine = [event for event in there if equal(event[key], keys[key])]
            return is_live(inner, keys, mine, at_us, seen=seen, around=(*around, condition.step))
        case _ if isinstance(condition, terms.Predicate):
            return False
        case terms.All() | terms.Any() | terms.Not():
            members = terms.children(condition)
            return any(is_live(one, keys, history, at_us, seen=seen, around=around) for one in members)
        case terms.Compare(left, _, right):
            all_terms = [*terms_in(left), *terms_in(right)]
            looking = [(term, values.conditions_in(term)) for term in all_terms if is_past(type(term))]
        case _:
            looking = [(condition, terms.children(condition))]
    return any(
        (bool(around) and remembers(part, seen(part, around, history), at_us)) or inside(part, conditions)
        for part, conditions in looking
    )


def first_event(rule: Rule, keys: Keys, events: Sequence[Event], at_us: int) -> int | None:
    """Return the event since which the slice has been live until this time, if it is live."""
    first = None

    def live(end: int, then_us: int) -> bool:
        def seen(part: Any, around: terms.Keys, history: Sequence[Event]) -> Sequence[Event]:
            return rule.seen_by(part, around, history, events)

        visible, seeing = (events[:end], seen) if rule.kept else (events[rule.birth : end], all_seen)
        return not keys or is_live(rule.condition, keys, visible, then_us, seen=seeing)

    for number in range(waits_from(rule), len(events)):
        now_us = events[number].time_us
        if first is not None and not live(number, now_us):
            first = None
        if not live(number + 1, now_us):
            first = None
        elif first is None and all(equal(events[number][name], value) for name, value in keys.items()):
            first = number
    return first if first is not None and live(len(events), at_us) else None


def waits_from(rule: Rule) -> int:
    """Return the first event whose slice the rule may wait for."""
    return max(rule.timed_from, min([rule.birth, *rule.kept.values()]))


# -- the times at which a verdict could turn ----------------------------------------------------------------


def members_of(part: Any) -> Iterator[Any]:
    """Yield a condition or term, and everything in it."""
    if isinstance(part, tuple):
        for each in part:
            yield from members_of(each)
    elif is_dataclass(part):
        yield part
        for name in part.__match_args__:
            yield from members_of(getattr(part, name))


def candidates(condition: terms.Condition, history: Sequence[Event], start_us: int, end_us: int) -> list[int]:
    """Yield the times after one, up to another, at which something could turn a verdict, in order."""
    found = {start_us + 1, end_us}
    times = {event.time_us for event in history}
    for part in members_of(condition):
        for name in ("window_secs", "min_secs"):
            secs = getattr(part, name, None)
            if secs is not None:
                found.update(time_us + window_us(secs) for time_us in times)
                width_us = pane_us(secs)
                ends = [(time_us // width_us + 1) * width_us for time_us in times]
                found.update([*ends, *(end_us + window_us(secs) for end_us in ends)])
        if isinstance(part, terms.Compare):
            # An age, or the time itself, may equal a number for one microsecond.
            numbers = [side for side in (part.left, part.right) if kind(side) == "number"]
            found.update(time_us + round(number * 1_000_000) for number in numbers for time_us in (0, *times))
        if isinstance(part, values.Clock):
            first = start_us // MINUTE_US
            found.update(minute * MINUTE_US for minute in range(first, end_us // MINUTE_US + 1))
    near = {us + more for us in found for more in (-1, 0, 1)}
    return sorted(us for us in near if start_us < us <= end_us)


def turning(true_at: Callable[[int], bool], times: Sequence[int]) -> Iterator[int]:
    """Yield the times at which it becomes true. Between two of the given times, it turns at most once."""
    for us in times:
        if true_at(us) and not true_at(us - 1):
            yield us
    for before, after in pairwise(times):
        # Between two candidates, only the time itself can make a comparison true.
        if after - before > 1 and not true_at(before) and true_at(after - 1):
            yield before + bisect_left(range(before, after), True, key=true_at)


def firings(
    rules: Mapping[str, Rule], events: Sequence[Event], stored: Mapping[str, Any], start_us: int, end_us: int
) -> list[ByTime]:
    """Yield the firings by time after one time, up to another, if no event comes in between, in order."""
    found = []
    for rule_id, rule in rules.items():
        if not (rule.enabled and rule.timed):
            continue
        names = keys_of(rule.condition)
        slices: list[dict[str, Any]] = []
        for event in events[waits_from(rule) :]:
            keys = {name: event[name] for name in names}
            if all(map(scalar, keys.values())) and not any(
                all(equal(keys[name], other[name]) for name in names) for other in slices
            ):
                slices.append(keys)
        for keys in slices:

            def true_at(us: int, keys: Keys = keys, rule: Rule = rule) -> bool:
                return rule.is_true([*events, key_event(keys, us, stored)])

            history = events[min([rule.birth, *rule.kept.values()]) :]
            for us in sorted({*turning(true_at, candidates(rule.condition, history, start_us, end_us))}):
                first = first_event(rule, keys, events, us - 1)
                if first is not None:
                    found.append((us, rule.priority, first, ByTime(us, rule_id, tuple(keys.items()))))
    return [by_time for *_, by_time in sorted(found, key=lambda one: one[:3])]
