"""The rules that fire at an event, explained: when it is evaluated, or in a dry run."""

import logging
from collections.abc import Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.explaining import NODES_MAX, Reading, predicates_at, reading
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.explanation.past.remembered import Remembered
from engine.evaluation.requirements import requirements_of
from engine.evaluation.rules import Rule
from engine.evaluation.state.node_names import NodeName
from engine.language.diagnostics import Entry, Refusal

_log = logging.getLogger(__name__)

DRY_RUN_NODES_MAX: Final = 40_000
"""The most nodes of rules in a dry run; each takes 10 to 40 µs."""


KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
"""About how many bytes of what rules remember are copied before an event, to explain those that fire: 10 000
memories that are times, or fewer with records."""


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
    try:
        remembered = _remembered(detector, fields, sent)
        outcome = detector.submit_clean_one(fields, timestamp_ms, sent)
        assert detector.clock_us is not None, "an event was evaluated"
        try:
            event = Reading(detector.clock_us, (), predicates_at(detector, fields, sent), remembered)
            nodes = [
                event.node(detector.live[rule.id])
                for rule in takewhile(partial(_was_kept, detector, remembered), _first(outcome.fired))
            ]
        except Exception:  # noqa: BLE001 -- the event is evaluated
            _log.exception("what fired could not be explained")
            nodes = []
    finally:
        detector.forget_lookups()
    return Firings(outcome.fired, tuple(outcome.messages), tuple(nodes))


def _remembered(detector: Detector, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Remembered:
    """Read what the first rules that may fire at an event remember before it, up to KEPT_BYTES_MAX."""
    remembered = Remembered(detector.state, detector.events_seen, fields, sent).keep(())
    left = KEPT_BYTES_MAX
    for enabled in detector.rule_set.candidates(fields, sent):
        for name in enabled.memories:
            if left <= 0:
                return remembered
            if not remembered.has((name,)):
                left -= remembered.keep_one(name)
    return remembered


def _was_kept(detector: Detector, remembered: Remembered, rule: Rule) -> bool:
    live = detector.live[rule.id]
    memories = requirements_of(rule.condition, live.birth).memories
    return remembered.has(NodeName(node, path, live.birth) for node, path in memories)


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
