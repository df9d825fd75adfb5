"""Explains events without recording them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.events import frames
from engine.evaluation.events.intake import Intake
from engine.evaluation.events.outcomes import late, not_milliseconds, warnings_on
from engine.evaluation.explanation.decided import Deciding, Entries, decided
from engine.evaluation.explanation.nodes import ExplainedRule, Explanation, Future, Node, every, negated, some
from engine.evaluation.explanation.predicates import Predicates, future_of
from engine.evaluation.explanation.why_not import Steps, why_not
from engine.evaluation.facts.shown import Shown
from engine.evaluation.facts.values import Event, key_of
from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.operators.compare import found_in
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import Births, inside, requirements_of
from engine.evaluation.rules import LiveRule, Rule
from engine.evaluation.stamps import stamp_of
from engine.evaluation.timed.timing import FiredByTime
from engine.evaluation.times import NEVER
from engine.language import condition as language
from engine.language.condition import Condition, Predicate
from engine.language.diagnostics import Entry, Refusal, json_type, quoted
from engine.language.durations import microseconds
from engine.language.text.printer import format_term

NODES_MAX: Final = 4_000
"""The maximum number of nodes that are explained at once, except for a single rule."""

_OUTSIDE: Final = "`where` is false, so the event belongs to no slice; the rest is shown as if it did"

_NOT_SMALLEST: Final = "the search for `why_not` ended at its bound, so a smaller set may do"
_NOT_FOUND: Final = "the search for `why_not` ended at its bound, and found no set"

_DISABLED: Final = "the rule is disabled, so it observes no events"

_HELD_BACK: Final = "the action is held back: for these values, `every_secs` has the rule act again in {} s"


def explain(
    detector: Detector,
    fields: Mapping[str, Any],
    timestamp_ms: float | datetime,
    vars: Mapping[str, Any] | None = None,  # noqa: A002
    *,
    rule_id: str | None = None,
) -> Explanation:
    """Explain why each rule, or the one with that id, would fire at an event or not.

    The event is not recorded, and nothing is changed. Raises Refusal like `Detector.evaluate`, 1201 for an
    unknown rule, and 1400 if the rules have too many nodes.
    """
    event = Intake(detector.limits).event(fields, timestamp_ms, vars)
    return explain_clean(detector, *event, rule_id=rule_id)


def explain_row(detector: Detector, frame: Any, time: str, row: int) -> Explanation:
    """Explain a row of a DataFrame as `evaluate_frame` evaluates it in a detector without a history.

    Rows are counted from 0. Only the rules, relations and limits of the detector are used: it may have
    evaluated the frame already, and `explain` would take the row for another event. Raises the errors of
    `evaluate_frame`, and IndexError if there is no such row.
    """
    events = frames.events_of(frame, time)
    if not 0 <= row < len(events):
        raise IndexError(f"the frame has {len(events)} rows, and none at {row}")
    anew = Detector(limits=detector.limits)
    for relation in detector.relations():
        anew.install_relation(relation.name, detector.relation(relation.name))
    for rule in detector.rules():
        anew.put_rule(rule)
    anew.evaluate_many(events[:row])
    return explain(anew, *events[row])


def explain_clean(
    detector: Detector,
    fields: Mapping[str, Any],
    timestamp_ms: float,
    sent: Mapping[str, Any],
    *,
    rule_id: str | None = None,
) -> Explanation:
    """Explain one event that consists of JSON values, like `explain`."""
    with one_by_one(detector, fields, timestamp_ms, sent, rule_id=rule_id) as (event, explained):
        return Explanation(event.now_us, tuple(explained), event.messages)


@contextmanager
def one_by_one(
    detector: Detector,
    fields: Mapping[str, Any],
    timestamp_ms: float,
    sent: Mapping[str, Any],
    *,
    rule_id: str | None = None,
) -> Iterator[tuple["Reading", Iterator[ExplainedRule]]]:
    """Yield an event, and its rules as an iterator that explains each on demand. See `explain_clean`."""
    if rule_id is not None:
        detector.rule(rule_id)
        explained: Sequence[LiveRule] = [detector.live[rule_id]]
    else:
        explained = list(detector.live.values())
        _check_size(explained)
    with reading(detector, fields, timestamp_ms, sent) as event:
        yield event, _explained(detector, event, explained, (fields, timestamp_ms, sent))


def _explained(
    detector: Detector, reading: "Reading", explained: Sequence[LiveRule], event: Event
) -> Iterator[ExplainedRule]:
    steps, timed = Steps(), [live for live in explained if live.rule.priority in detector.timing.watches]
    ahead: Mapping[str, int] | None = None
    for live in explained:
        one = explained_rule(live, reading, steps)
        if ahead is None and live in timed:
            copied = detector.fork([event], timed)
            copied.submit_clean_one(*event)
            ahead = firings_ahead(copied)
        if one.verdict and (held_us := held_back_us(detector, live.rule, reading.now_us, event)) > 0:
            secs = f"{held_us / 1e6:.6f}".rstrip("0").rstrip(".")
            one = replace(one, node=one.node.noted(_HELD_BACK.format(secs)))
        yield replace(one, fires_us=ahead.get(live.rule.id)) if ahead else one


class Reading(NamedTuple):
    """An event and the state of its detector before it, for reading only."""

    now_us: int
    """The time at which the event is evaluated."""
    messages: tuple[Entry, ...]
    predicates: Predicates
    entries: Entries
    rule_set: RuleSet
    tells_since: bool = False
    """Whether nodes show since when they have their verdicts, which takes twice as long."""

    def node(self, live: LiveRule) -> Node:
        """Explain the condition of a rule."""
        condition = live.rule.condition
        if not live.rule.enabled:
            return Node(condition=condition, future=Future(verdict=False), note=_DISABLED)
        return Explaining(self).node(condition, live.births, ())


def time_at(detector: Detector, timestamp_ms: float) -> tuple[int, int]:
    """Return when an event would be evaluated, and how late it is, in microseconds. Raises Refusal 1402."""
    stamped_us = microseconds(timestamp_ms, 1_000)
    clock_us = NEVER if detector.clock_us is None else detector.clock_us
    now_us = detector.time_of(stamped_us, clock_us)
    return now_us, now_us - stamped_us


@contextmanager
def reading(
    detector: Detector, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]
) -> Iterator[Reading]:
    """Read an event that consists of JSON values. Raises Refusal 1402."""
    now_us, late_us = time_at(detector, timestamp_ms)
    messages: list[Entry] = [late(late_us)] if late_us else []
    if detector.awaits_first:
        messages += not_milliseconds(timestamp_ms)
    try:
        event = reading_at(detector, now_us, fields, sent)
        if detector.rule_set.may_warn:
            messages += warnings_on(fields, sent, detector.rule_set, detector.limits)
        yield event._replace(messages=tuple(messages))
    finally:
        detector.forget_lookups()


def reading_at(
    detector: Detector,
    now_us: int,
    fields: Mapping[str, Any],
    sent: Mapping[str, Any],
    entries: Entries | None = None,
) -> Reading:
    """Read an event that is evaluated at a time, which is not before the detector's clock.

    By default, the current state is read. The result is valid until `forget_lookups`.
    """
    rule_set = detector.rule_set
    if rule_set.patterns.bounded:
        rule_set.patterns.begin(fields, sent)
    predicates = Predicates(fields, sent, rule_set, now_us)
    entries = entries or Entries(detector.events_seen + 1, fields, sent)
    return Reading(now_us, (), predicates, entries, rule_set)


def _check_size(explained: Sequence[LiveRule]) -> None:
    left = NODES_MAX
    for number, live in enumerate(explained):
        # Each rule has at least one node, so the loop ends after NODES_MAX rules.
        left -= requirements_of(live.rule.condition).size
        if left < 0 and number:
            said = f"the rules have too many nodes; limit {NODES_MAX}; name one rule"
            raise Refusal(Entry(1400, said))


def explained_rule(live: LiveRule, event: Reading, steps: Steps) -> ExplainedRule:
    """Explain a rule, and what would turn its verdict, as far as the remaining steps suffice."""
    node = event.node(live)
    if not live.rule.enabled:
        return ExplainedRule(live.rule, node, None)
    turning = why_not(node, event.predicates, steps)
    if not turning.is_smallest:
        said = _NOT_SMALLEST if turning.predicates else _NOT_FOUND
        node = node.noted(said)
    return ExplainedRule(live.rule, node, turning.predicates)


class Explaining:
    """The explanation of one rule."""

    def __init__(self, event: Reading) -> None:
        self._event, self._predicates = event, event.predicates

    def node(self, condition: Condition, births: Births, path: Path) -> Node:
        """Explain a condition under a path of keys for which the event has values."""
        match condition:
            case language.All(members) | language.Any(members):
                nodes = tuple(self.node(member, births, path) for member in members)
                joined, decide = (every, all) if isinstance(condition, language.All) else (some, any)
                future = joined([node.future for node in nodes])
                return Node(condition=condition, future=future, nodes=nodes, decide=decide)
            case language.Not(inner):
                node = self.node(inner, births, path)
                future = negated(node.future)
                return Node(condition=condition, future=future, nodes=(node,), decide=lambda of: not of[0])
            case language.Keyed():
                return self._keyed(condition, births, path)
            case _ if isinstance(condition, Predicate):
                return self._predicate(condition)
            case _:
                return self._decided(condition, births, path)

    def _predicate(self, predicate: Predicate) -> Node:
        predicates = self._predicates
        found = predicates.shown(predicates.names(predicate))
        return Node(
            condition=predicate,
            future=future_of(predicate, self._event.now_us, verdict=predicates.truth(predicate)),
            values={name: shown.value for name, shown in found.items()},
            note="; ".join([*predicates.notes(predicate), *_cut(found)]) or None,
        )

    def _keyed(self, keyed: language.Keyed, births: Births, path: Path) -> Node:
        value = self._predicates.value(keyed.key)
        if key_of(value) is None:
            is_ = "missing" if value is None else f"{json_type(value)}, which is no key"
            note = f"{quoted(keyed.key)} is {is_}, so the event belongs to no slice"
            return Node(condition=keyed, future=Future(verdict=False), note=note)
        longer = births.step(keyed, path)
        node = self.node(keyed.inner, births, longer)
        key = self._predicates.shown([fact_of(step) for step in longer])
        notes = _cut(key)
        nodes: tuple[Node, ...] = (node,)
        future = node.future
        if keyed.where is not None:
            # Time does not change whether the event belongs to a slice.
            where = self.node(keyed.where, births.of_where(keyed, path), path)
            nodes = (node, where)
            if not where.verdict:
                future = Future(verdict=False)
                notes.insert(0, _OUTSIDE)
        return Node(
            condition=keyed,
            future=future,
            nodes=nodes,
            key={name: shown.value for name, shown in key.items()},
            note="; ".join(notes) or None,
            decide=all,
        )

    def _decided(self, node: Condition, births: Births, path: Path) -> Node:
        """Explain a node that looks back or compares terms."""
        event = self._event
        nodes = tuple(self.node(*child) for child in inside(node, births, path))
        truths = tuple([each.verdict for each in nodes])
        deciding = Deciding.of(event.rule_set.histories, node, births, path)
        one = decided(deciding, event.entries, self._predicates.value, event.now_us, truths)
        shown = self._predicates.shown(one.facts)
        return Node(
            condition=node,
            future=one.future(),
            nodes=nodes,
            values={name: shown.value for name, shown in shown.items()},
            witness_us=one.witness_us(),
            found=_found(node, one.values()),
            since_us=one.since_us() if event.tells_since else None,
            note="; ".join([*one.notes(), *_cut(shown)]) or None,
            decide=one.verdict_if if nodes else None,
        )


def _found(node: Condition, values: Sequence[Any]) -> Any:
    if not isinstance(node, language.Compare):
        return values[0]
    named = zip(map(format_term, found_in(node)), values, strict=True)
    return {text: value for text, value in named if value is not None}


def _cut(found: Mapping[str, Shown]) -> list[str]:
    return [f"{quoted(name)} is shown cut" for name, shown in found.items() if shown.is_cut]


# -- what fires by time: copies find out --------------------------------------------------------------------

_CHANGES_MAX: Final = 200
"""The maximum number of changes by time that are tried, for each timed rule, to find when it fires."""


def held_back_us(detector: Detector, rule: Rule, now_us: int, event: Event) -> int:
    """Return how long the actions of a true rule are still suppressed at an event; 0 or less: it acts."""
    if not rule.acts_at_most_once:
        return 0
    fields, _, sent = event
    at_most_once = acted_before(detector, [rule], now_us, fields, sent or {})
    return at_most_once.free_us(rule, fields, sent or {}) - now_us


def acted_before(
    detector: Detector, fired: Sequence[Rule], now_us: int, fields: Mapping[str, Any], sent: Mapping[str, Any]
) -> AtMostOnce:
    """Return the entries of firing rules about their actions, after the firings by time before the event.

    Of firings that are still due, only those for the keys of the event count.
    """
    now = stamp_of(now_us, 0)
    held = [detector.live[rule.id] for rule in fired if rule.acts_at_most_once]
    if detector.timing.queue.due > now or not held:
        return detector.at_most_once
    copied = detector.fork([(fields, 0, sent)], held)
    copied.timing.pass_time(now, copied.events_seen)
    return copied.at_most_once


def firings_ahead(copied: Detector) -> dict[str, int]:
    """Return when rules, by id, first fire by time if no event comes, in microseconds.

    The detector must be a copy, because its time passes. After some hundred changes by time, the search ends.
    """
    timing, found = copied.timing, dict[str, int]()

    def fire(fired: FiredByTime, tick: int) -> None:
        if copied.recorder.by_time(*fired, tick) is not None:
            found.setdefault(fired.rule.id, fired.time_us)

    timing.fired = fire
    for _ in range(_CHANGES_MAX * len(timing.watches)):
        due_us = timing.next_due_us
        if due_us is None:
            break
        timing.pass_time(stamp_of(due_us, 0), copied.events_seen)
        for priority in [each for each, watch in timing.watches.items() if watch.rule.id in found]:
            timing.remove(priority)
    return found
