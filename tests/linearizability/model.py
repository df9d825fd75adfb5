"""What one detector does: each step is the reference's, with the events that its rules can still see."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, assert_never

from engine.language import condition as terms
from tests.linearizability.history import (
    REFUSED,
    AddRule,
    Asked,
    At,
    ChangeRule,
    Evaluate,
    Fired,
    Listed,
    ListRules,
    Position,
    RemoveRule,
    Sent,
)
from tests.reference import Event, ReferenceDetector, Rule
from tests.reference_panes import window_us


class Seen(NamedTuple):
    """An event that was evaluated: its time, and its number, which tells its fields."""

    time_us: int
    number: int


class State(NamedTuple):
    """A detector. Births count from the first event that is still kept."""

    tail: tuple[Seen, ...] = ()
    rules: tuple[Rule, ...] = ()
    highest: int = 0
    events: int = 0

    def rule(self, name: str) -> Rule:
        """The rule of this name, which exists."""
        return next(rule for rule in self.rules if rule.name == name)


@cache
def reach(condition: terms.Condition) -> tuple[int, int]:
    """Return how far back a condition looks: microseconds, and events. Raises ValueError if unbounded."""
    match condition:
        case terms.Leaf() | terms.Ref():
            return 0, 0
        case terms.All(members) | terms.Any(members):
            return _farthest(map(reach, members))
        case terms.Not(inner):
            return reach(inner)
        case terms.Previous(inner):
            window, events = reach(inner)
            # A window begins at the event before, which may be any time ago.
            if window:
                raise ValueError(condition)
            return window, events + 1
        case (
            terms.OnceWithin(inner, secs)
            | terms.EarlierWithin(inner, secs)
            | terms.Count(inner, float(secs) | int(secs), _, _)
        ):
            return _windowed(condition, inner, secs)
        case terms.Distinct(_, where, float(secs) | int(secs), _, _):
            return _windowed(condition, where, secs)
        case terms.Keyed(inner, _, None):
            window, events = reach(inner)
            # The previous event of a key may be any number of events ago.
            if events:
                raise ValueError(condition)
            return window, 0
        case _:
            raise ValueError(condition)


def _windowed(condition: terms.Condition, inner: terms.Condition | None, secs: float) -> tuple[int, int]:
    window, events = (0, 0) if inner is None else reach(inner)
    # The event before the first one in the window may be any time ago.
    if events:
        raise ValueError(condition)
    return window + window_us(secs), 0


def _farthest(reaches: Iterable[tuple[int, int]]) -> tuple[int, int]:
    windows, events = zip(*reaches, strict=True)
    return max(windows), max(events)


class DetectorModel:
    """The initial state of a detector to which this will be sent."""

    def __init__(self, every: Iterable[Asked]) -> None:
        self.initial = State()
        evaluations = [asked for asked in every if isinstance(asked, Evaluate)]
        self._sent = {event.number: event for asked in evaluations for event in asked.events}
        self._events = dict[Seen, Event]()

    def done(self, state: State, asked: Asked) -> tuple[State, Any]:
        """Return the state after a request, and its answer."""
        match asked:
            case Evaluate(events):
                given = list[Fired | str]()
                after = state
                for event in events:
                    after, fired = self._event(after, event)
                    given.append(fired)
                return after, tuple(given)
            case AddRule(name, condition, notify):
                reach(condition)
                rules = self._reference(state)
                rules.add_rule(name, name, condition, notify=notify)
                after, given = self._ruled(state, rules), "added"
            case ChangeRule(name, changes):
                after, given = self._changed(state, name, dict(changes))
            case RemoveRule(name):
                there = tuple(rule for rule in state.rules if rule.name != name)
                given = "removed" if len(there) < len(state.rules) else REFUSED
                after = state._replace(rules=there)
            case ListRules():
                after, given = state, tuple(map(listed, state.rules))
            case Position():
                after, given = state, At(state.tail[-1].time_us / 1_000 if state.tail else None, state.events)
            case never:
                assert_never(never)
        return after, given

    def _changed(self, state: State, name: str, changes: Mapping[str, Any]) -> tuple[State, Any]:
        reference = self._reference(state)
        if name not in reference.rules:
            return state, REFUSED
        reference.change_rule(name, **changes)
        return self._ruled(state, reference), (listed(reference.rules[name]),)

    def _event(self, state: State, sent: Sent) -> tuple[State, Fired | str]:
        late_us = max(0, state.tail[-1].time_us - sent.timestamp_ms * 1_000) if state.tail else 0
        seen, given = self._evaluate(state, sent, late_us)
        if seen is None:
            return state, given
        return _cut(state._replace(tail=(*state.tail, seen), events=state.events + 1)), given

    def _evaluate(self, state: State, sent: Sent, late_us: int) -> tuple[Seen | None, Fired | str]:
        """Ask the reference; return what it has seen, unless it refused the event, and what fired."""
        reference = self._reference(state)
        # Each rule sees only what it can look back to, which takes a tenth of the time.
        for rule in state.rules:
            window, events = reach(rule.condition)
            if not window and rule.birth < len(state.tail) - events:
                reference.rules[rule.name] = replace(rule, birth=len(state.tail) - events)
        actions = reference.evaluate(sent.fields, sent.timestamp_ms)
        if actions is None:
            return None, REFUSED
        told = ((kind, name, priority, notify) for kind, _, name, priority, notify in actions)
        return Seen(reference.events[-1].time_us, sent.number), Fired(tuple(told), late_us)

    def _reference(self, state: State) -> ReferenceDetector:
        reference = ReferenceDetector()
        reference.events = [self._event_of(seen) for seen in state.tail]
        reference.rules = {rule.name: rule for rule in state.rules}
        reference.highest = state.highest
        return reference

    def _event_of(self, seen: Seen) -> Event:
        if seen not in self._events:
            self._events[seen] = Event(seen.time_us, self._sent[seen.number].fields, {})
        return self._events[seen]

    def _ruled(self, state: State, reference: ReferenceDetector) -> State:
        return state._replace(rules=tuple(reference.rules.values()), highest=reference.highest)


def listed(rule: Rule) -> Listed:
    """Return a rule as an answer tells it."""
    return Listed(rule.name, rule.notify, rule.enabled, rule.priority)


def _cut(state: State) -> State:
    """Forget the events that no rule can see any more, whatever comes, by `reach`."""
    window, events = _farthest(reach(rule.condition) for rule in state.rules) if state.rules else (0, 0)
    # The last event has the clock.
    least = max(events, 1)
    end_us = state.tail[-1].time_us - window
    cut = 0
    while len(state.tail) - cut > least and state.tail[cut].time_us < end_us:
        cut += 1
    if not cut:
        return state
    rules = tuple(
        replace(rule, birth=max(0, rule.birth - cut)) if rule.birth else rule for rule in state.rules
    )
    return state._replace(tail=state.tail[cut:], rules=rules)
