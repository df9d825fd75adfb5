"""The rules that fire at an event, explained: when it is evaluated, or in a dry run."""

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.explaining import NODES_MAX, Reading, predicates_at, reading
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.explanation.past.remembered import Remembered
from engine.evaluation.plan.requirements import requirements_of
from engine.evaluation.rules import Rule
from engine.language.diagnostics import Entry, Refusal

_log = logging.getLogger(__name__)

DRY_RUN_NODES_MAX: Final = 40_000
"""The most nodes of rules in a dry run; each takes 10 to 40 µs."""


class Firings(NamedTuple):
    """The rules that fire at an event, in order of priority."""

    rules: tuple[Rule, ...]
    messages: tuple[Entry, ...]
    nodes: tuple[Node, ...]
    """The explanations of the first of these rules, as many as are small enough together."""


def evaluate_explained(
    detector: Detector, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]
) -> Firings:
    """Evaluate an event that consists of JSON values, and explain what fires. Raises Refusal 1402.

    Once the event is evaluated, a failure to explain it is logged: then there are no explanations.
    """
    remembered = Remembered(detector.state, detector.events_seen, fields, sent).keep()
    try:
        outcome = detector.submit_clean_one(fields, timestamp_ms, sent)
        assert detector.clock_us is not None, "an event was evaluated"
        try:
            event = Reading(detector.clock_us, (), predicates_at(detector, fields, sent), remembered)
            nodes = [event.node(detector.live[rule.id]) for rule in _first(outcome.fired)]
        except Exception:  # noqa: BLE001 -- the event is evaluated
            _log.exception("what fired could not be explained")
            nodes = []
    finally:
        detector.forget_lookups()
    return Firings(outcome.fired, tuple(outcome.messages), tuple(nodes))


def dry_run(
    detector: Detector, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]
) -> Firings:
    """Return which rules would fire at an event that consists of JSON values. Nothing is changed.

    Raises Refusal as an evaluation does, and 1400 if there are too many rules.
    """
    check_nodes(detector, DRY_RUN_NODES_MAX)
    with reading(detector, fields, timestamp_ms, sent) as event:
        firing = [
            (live.rule, node)
            for live in detector.live.values()
            if live.rule.enabled and not live.rule.shadow and (node := event.node(live)).verdict
        ]
    rules = tuple([rule for rule, _ in firing])
    return Firings(rules, event.messages, tuple([node for _, node in firing[: len(_first(rules))]]))


def check_nodes(detector: Detector, nodes_max: int) -> None:
    """Raise Refusal 1400 if the enabled rules have too many nodes for a dry run."""
    if detector.rule_set.nodes > nodes_max:
        said = f"the rules have {detector.rule_set.nodes} nodes; a dry run takes at most {nodes_max}"
        raise Refusal(Entry(1400, said))


def _first(rules: tuple[Rule, ...]) -> list[Rule]:
    """Return the first rules, at least one, whose conditions have no more than NODES_MAX nodes together."""
    left = NODES_MAX
    found: list[Rule] = []
    for rule in rules:
        left -= requirements_of(rule.condition).size
        if left < 0 and found:
            break
        found.append(rule)
    return found
