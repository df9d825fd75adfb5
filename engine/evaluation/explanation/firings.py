"""The rules that fire at an event, explained: when it is evaluated, or in a dry run."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.explaining import NODES_MAX, Reading, reading, reading_at, time_at
from engine.evaluation.explanation.found import Plan, plan_of
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.explanation.past import Entries
from engine.evaluation.explanation.predicates import Predicates
from engine.evaluation.explanation.turning.ahead import acted_before
from engine.evaluation.facts.values import key_of
from engine.evaluation.firings.recorder import Recorder, Told
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.requirements import requirements_of
from engine.evaluation.rules import Rule
from engine.evaluation.stamps import EVENT, stamp_of, time_of
from engine.language.diagnostics import Entry, Refusal

_log = logging.getLogger(__name__)

_ENTRIES_TOLD_MAX: Final = 10_000
"""The most times, values and sums that are read for the feed at one event."""


class Details(NamedTuple):
    """For whom a rule fires, and what it found."""

    keys: Mapping[str, Any]
    """The values of the rule's keys, cut where they are long."""
    found: Mapping[str, Any]
    """What its counting members and terms found, by their texts."""


class Firings(NamedTuple):
    """The rules that fire at an event, in order of priority."""

    rules: tuple[Rule, ...]
    messages: tuple[Entry, ...]
    nodes: tuple[Node, ...]
    """The explanations of the first of these rules, as many as are small enough together."""
    details: tuple[Details, ...] = ()
    """Those of each rule, if they were asked for. What is found is left out after as many."""


def evaluate_explained(
    detector: Detector,
    fields: Mapping[str, Any],
    timestamp_ms: float,
    sent: Mapping[str, Any] | None,
    *,
    explained: bool = True,
    detailed: bool = False,
) -> Firings:
    """Evaluate an event that consists of JSON values, and explain what fires. Raises Refusal 1402.

    A failure to explain what fires is logged: then there are no explanations.
    """
    sent = sent or {}
    try:
        now_us, _ = time_at(detector, timestamp_ms)
        # What is due by then fires before the event, and may hold back what it would fire.
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

    Raises Refusal as an evaluation does. A failure to explain what would fire is logged.
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
        _log.exception("what fires could not be explained")
        nodes, details = (), ()
    return Firings(acting, event.messages, nodes, details)


def told(
    rule_set: RuleSet, fired: Sequence[Rule], fields: Mapping[str, Any], sent: Mapping[str, Any], stamp: int
) -> list[Told]:
    """Return what the feed tells of rules that fire at an event, which is decided and not committed."""
    now_us, number = time_of(stamp), stamp & EVENT
    # The patterns have begun with this event.
    predicates = Predicates(fields, sent, rule_set, now_us)
    event = Reading(now_us, (), predicates, Entries(number, fields, sent, _ENTRIES_TOLD_MAX), rule_set)
    found: list[Told] = []
    left = NODES_MAX
    for rule in fired:
        plan = plan_of(event, rule.priority)
        left -= plan.size
        one = Told(plan.text, _keys(event, plan), {}, {})
        if left >= 0 or not found:
            try:
                one = Told(plan.text, one.keys, plan.found(event), plan.witnesses(event))
            except Refusal:
                # It remembers too much to be read at each event at which it fires.
                left = 0
            except Exception:  # noqa: BLE001 -- the event can be evaluated
                _log.exception("what fires could not be explained in the feed")
        found.append(one)
    return found


def explain_feeds() -> None:
    """Have the feeds of all detectors explain what fires. Feeds are below explanations."""
    Recorder.tell = staticmethod(told)


def _keys(event: Reading, plan: Plan) -> dict[str, Any]:
    names = [name for name in plan.keys if key_of(event.predicates.value(name)) is not None]
    shown = event.predicates.shown(names)
    return {name: shown[name].value for name in names}


def _detailed(event: Reading, fired: tuple[Rule, ...]) -> Iterator[Details]:
    """Yield the keys of each rule, and what it found as long as the rules are small enough together."""
    left = NODES_MAX
    for place, rule in enumerate(fired):
        plan = plan_of(event, rule.priority)
        left -= plan.size
        found = plan.found(event) if left >= 0 or not place else {}
        yield Details(_keys(event, plan), found)


def _explained(detector: Detector, event: Reading, fired: tuple[Rule, ...]) -> Iterator[Node]:
    """Explain the first rules, at least one, that are small enough together and remember little enough."""
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
