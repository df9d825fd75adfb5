"""Explains the rules that fire at an event, in an evaluation or a dry run, and finds their details.

Details are a rule's keys, the values of its counting members and terms, and witnesses. How to find them is
planned once per rule: looking up the parts of a condition takes longer than the rest, because conditions are
compared by their contents.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.decided import Decided, Deciding, Entries, decided
from engine.evaluation.explanation.explaining import (
    NODES_MAX,
    Explaining,
    Reading,
    acted_before,
    reading,
    reading_at,
    time_at,
)
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.explanation.predicates import Predicates
from engine.evaluation.facts.values import key_of
from engine.evaluation.firings.recorder import Recorder, Told
from engine.evaluation.kernel.rule_set import EnabledRule, RuleSet
from engine.evaluation.operators.compare import found_in
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import Births, inside, keys_of, requirements_of
from engine.evaluation.rules import Rule
from engine.evaluation.stamps import EVENT, stamp_of, time_of
from engine.language import condition as language
from engine.language.condition import Condition, Predicate
from engine.language.diagnostics import Entry, Refusal, cut
from engine.language.forms.form import Content
from engine.language.forms.table import FORM_OF
from engine.language.text.printer import format as format_condition
from engine.language.text.printer import format_term

_log = logging.getLogger(__name__)

_ENTRIES_TOLD_MAX: Final = 10_000
"""The maximum number of times, values and sums that are read for the feed at one event."""


class Details(NamedTuple):
    """The keys for which a rule fires, and the values found."""

    keys: Mapping[str, Any]
    """The values of the rule's keys; long ones are cut."""
    found: Mapping[str, Any]
    """The values of its counting members and terms, by their texts."""


class Firings(NamedTuple):
    """The rules that fire at an event, in order of priority."""

    rules: tuple[Rule, ...]
    messages: tuple[Entry, ...]
    nodes: tuple[Node, ...]
    """The explanations of the first of these rules, as many as are small enough together."""
    details: tuple[Details, ...] = ()
    """The details of each rule, if requested. If the rules are many, later ones have no values found."""


def evaluate_explained(
    detector: Detector,
    fields: Mapping[str, Any],
    timestamp_ms: float,
    sent: Mapping[str, Any] | None,
    *,
    explained: bool = True,
    detailed: bool = False,
) -> Firings:
    """Evaluate an event that consists of JSON values, and explain the firings. Raises Refusal 1402.

    If the explanation fails, that is logged, and there are no explanations.
    """
    sent = sent or {}
    try:
        now_us, _ = time_at(detector, timestamp_ms)
        # Firings due by then come before the event, and may suppress its actions.
        detector.timing.pass_time(stamp_of(now_us, 0), detector.events_seen)
        event = reading_at(detector, now_us, fields, sent)
        foreseen = _foreseen(detector, event, fields, sent, explained=explained, detailed=detailed)
        outcome = detector.submit_clean_one(fields, timestamp_ms, sent)
    finally:
        detector.forget_lookups()
    assert outcome.fired == foreseen.rules, "what was decided is what was evaluated"
    return foreseen._replace(rules=outcome.fired, messages=tuple(outcome.messages))


def dry_run(
    detector: Detector,
    fields: Mapping[str, Any],
    timestamp_ms: float,
    sent: Mapping[str, Any],
    *,
    explained: bool = True,
    detailed: bool = False,
) -> Firings:
    """Return which rules would fire at an event that consists of JSON values. Nothing is changed.

    Raises Refusal like an evaluation. A failed explanation is logged.
    """
    with reading(detector, fields, timestamp_ms, sent) as event:
        return _foreseen(detector, event, fields, sent, explained=explained, detailed=detailed)


def _foreseen(
    detector: Detector,
    event: Reading,
    fields: Mapping[str, Any],
    sent: Mapping[str, Any],
    *,
    explained: bool,
    detailed: bool,
) -> Firings:
    """Return which rules would fire at an event that was read."""
    fired = detector.rule_set.decide(fields, sent, stamp_of(event.now_us, 0), event.entries.number)
    at_most_once = acted_before(detector, fired, event.now_us, fields, sent)
    fired = at_most_once.acting(fired, fields, sent, stamp_of(event.now_us, 0), dry=True)
    acting = tuple([rule for rule in fired if not rule.shadow])
    try:
        nodes = tuple(_explained(detector, event, acting)) if explained else ()
        details = tuple(_detailed(event, acting)) if detailed else ()
    except Exception:  # noqa: BLE001 -- the event can be evaluated
        _log.exception("firings could not be explained")
        nodes, details = (), ()
    return Firings(acting, event.messages, nodes, details)


def told(
    rule_set: RuleSet, fired: Sequence[Rule], fields: Mapping[str, Any], sent: Mapping[str, Any], stamp: int
) -> list[Told]:
    """Return the details for the feed of rules that fire at an event, which is decided but not committed."""
    now_us, number = time_of(stamp), stamp & EVENT
    # The patterns have begun with this event.
    predicates = Predicates(fields, sent, rule_set, now_us)
    event = Reading(now_us, (), predicates, Entries(number, fields, sent, _ENTRIES_TOLD_MAX), rule_set)
    found: list[Told] = []
    left = NODES_MAX
    for rule in fired:
        plan = plan_of(event, rule.priority)
        left -= plan.size
        present = plan.present(event)
        one = Told(plan.text, plan.keys_at(event, present), {}, {})
        if left >= 0 or not found:
            try:
                one = Told(plan.text, one.keys, plan.found(event, present), plan.witnesses(event, present))
            except Refusal:
                # Its state is too large to be read at each event at which it fires.
                left = 0
            except Exception:  # noqa: BLE001 -- the event can be evaluated
                _log.exception("a firing could not be explained in the feed")
        found.append(one)
    return found


def explain_feeds() -> None:
    """Make the feeds of all detectors explain firings. Feeds are a lower layer than explanations."""
    Recorder.tell = staticmethod(told)


def _detailed(event: Reading, fired: tuple[Rule, ...]) -> Iterator[Details]:
    """Yield the keys of each rule, and the values found as long as the rules are small enough together."""
    left = NODES_MAX
    for place, rule in enumerate(fired):
        plan = plan_of(event, rule.priority)
        left -= plan.size
        present = plan.present(event)
        found = plan.found(event, present) if left >= 0 or not place else {}
        yield Details(plan.keys_at(event, present), found)


def _explained(detector: Detector, event: Reading, fired: tuple[Rule, ...]) -> Iterator[Node]:
    """Explain the first rules, at least one, as long as they and their state are small enough together."""
    left = NODES_MAX
    for place, rule in enumerate(fired):
        left -= requirements_of(rule.condition).size
        if left < 0 and place:
            return
        try:
            yield event.node(detector.live[rule.id])
        except Refusal:
            return


def check_nodes(detector: Detector, nodes_max: int) -> None:
    """Raise Refusal 1400 if the enabled rules have too many nodes for a dry run."""
    if detector.rule_set.nodes > nodes_max:
        said = f"the rules have {detector.rule_set.nodes} nodes; a dry run takes at most {nodes_max}"
        raise Refusal(Entry(1400, said))


# -- what a rule finds --------------------------------------------------------------------------------------

_TEXT_CHARS_MAX: Final = 200
"""The texts of members that look back are cut at this length."""

_CONDITION_CHARS_MAX: Final = 500
"""The text of a whole condition is cut at this length."""

_Truth = Callable[[Reading], bool]
"""Returns the truth of a condition at an event."""


class Plan(NamedTuple):
    """How to find the details of a rule."""

    enabled: EnabledRule
    """The rule of this plan."""
    size: int
    """The number of nodes of its condition."""
    text: str
    """The text of its condition, cut if long."""
    keys: tuple[str, ...]
    all_keys: frozenset[str]
    """The keys of the rule, and those around its members."""
    members: tuple["_Member", ...]
    """Its counting members and comparisons of terms."""
    looking_back: tuple["_Member", ...]
    """Its other members that look back."""

    def present(self, event: Reading) -> set[str]:
        """Return those of its keys that an event has."""
        value = event.predicates.value
        return {key for key in self.all_keys if key_of(value(key)) is not None}

    def keys_at(self, event: Reading, present: set[str]) -> dict[str, Any]:
        """Return the values of its keys, by name. A key that the event lacks is absent."""
        names = [name for name in self.keys if name in present]
        shown = event.predicates.shown(names)
        return {name: shown[name].value for name in names}

    def witnesses(self, event: Reading, present: set[str]) -> dict[str, int]:
        """Return the times of the events that make members true, by their texts, in microseconds."""
        return {
            member.texts[0]: witness_us
            for member in self.looking_back
            if present.issuperset(member.keys) and (witness_us := member.witness_us(event)) is not None
        }

    def found(self, event: Reading, present: set[str]) -> dict[str, Any]:
        """Return the values of the counting members and terms at an event, by their texts."""
        found: dict[str, Any] = {}
        for member in self.members:
            if present.issuperset(member.keys):
                for text, number in member.found(event):
                    # The same text may occur under other keys.
                    found[member.said_keys + text if text in found else text] = number
        return found


class _Member(NamedTuple):
    """A member that looks back, or a comparison of terms."""

    keys: tuple[str, ...]
    """The keys around it, without which it has no values."""
    said_keys: str
    texts: tuple[str, ...]
    """The texts of its values."""
    deciding: Deciding
    truths: tuple[_Truth, ...]
    """The truths of the conditions in it."""

    def found(self, event: Reading) -> Iterator[tuple[str, Any]]:
        """Yield its values, each with its text. Missing values, and those that JSON lacks, are left out."""
        for text, one in zip(self.texts, self._at(event).values(), strict=True):
            if one is not None and not (type(one) is float and not isfinite(one)):
                yield text, one

    def witness_us(self, event: Reading) -> int | None:
        """Return the time of the event that makes it true; None if it is not true, or no single one does."""
        one = self._at(event)
        return one.witness_us() if one.verdict else None

    def _at(self, event: Reading) -> Decided:
        truths = tuple([truth(event) for truth in self.truths])
        return decided(self.deciding, event.entries, event.predicates.value, event.now_us, truths)


def plan_of(event: Reading, priority: int) -> Plan:
    """Return the plan of an enabled rule. It is cached until the rule changes."""
    enabled, plans = event.rule_set.enabled[priority], event.rule_set.plans
    plan: Plan | None = plans.get(priority)
    if plan is None or plan.enabled is not enabled:
        condition = enabled.rule.condition
        members = [*_members(event, (condition, enabled.births, ()), ())]
        finding = tuple([one for one in members if _compares(one.deciding.node)])
        others = tuple([one for one in members if not _compares(one.deciding.node)])
        text = cut(format_condition(condition), _CONDITION_CHARS_MAX)
        keys = keys_of(condition)
        all_keys = frozenset({*keys, *(key for one in members for key in one.keys)})
        plan = Plan(enabled, requirements_of(condition).size, text, keys, all_keys, finding, others)
        plans[priority] = plan
    return plan


def _members(
    event: Reading, placed: tuple[Condition, Births, Path], keys: tuple[str, ...]
) -> Iterator[_Member]:
    """Yield the members that have values or look back, in the order of the condition."""
    condition, births, path = placed
    if isinstance(condition, language.Keyed):
        longer = births.step(condition, path)
        # Without the key, nothing inside is evaluated; `where`, too, is explained only with the key.
        keys = (*keys, condition.key)
        yield from _members(event, (condition.inner, births, longer), keys)
        if condition.where is not None:
            around = births.of_where(condition, path)
            yield from _members(event, (condition.where, around, path), keys)
        return
    children = [*inside(condition, births, path)]
    if isinstance(condition, language.Compare) or operator_of(condition) is not None:
        yield _Member(
            keys=keys,
            said_keys="".join(f"per {fact_of(step)} " for step in path),
            texts=_texts(condition),
            deciding=Deciding.of(event.rule_set.histories, condition, births, path),
            truths=tuple(_truth(event, *child) for child in children),
        )
    for child in children:
        yield from _members(event, child, keys)


def _compares(member: Condition) -> bool:
    """Return whether a member compares what it finds."""
    return Content.COMPARISON in FORM_OF[type(member)].fields.values()


def _texts(condition: Any) -> tuple[str, ...]:
    if isinstance(condition, language.Compare):
        return tuple(map(format_term, found_in(condition)))
    if not _compares(condition):
        return (cut(format_condition(condition), _TEXT_CHARS_MAX),)
    # The text before the comparison.
    return (format_condition(replace(condition, op="gt", value=0)).removesuffix(" > 0"),)


def _truth(event: Reading, condition: Condition, births: Births, path: Path) -> _Truth:
    """Return the function for the truth of a condition under a path at events."""
    match condition:
        case language.All(members) | language.Any(members):
            truths = [_truth(event, member, births, path) for member in members]
            joined = all if isinstance(condition, language.All) else any
            return lambda at: joined(truth(at) for truth in truths)
        case language.Not(inner):
            negated = _truth(event, inner, births, path)
            return lambda at: not negated(at)
        case language.Leaf() | language.Ref() if code := event.predicates.lasting_code(condition):
            return lambda at: at.predicates.truth_of(code)
        case _ if isinstance(condition, Predicate):
            return lambda at: at.predicates.truth(condition)
        case _:
            return lambda at: Explaining(at).node(condition, births, path).verdict
