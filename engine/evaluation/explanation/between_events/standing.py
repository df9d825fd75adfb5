"""The standing verdict of a rule: what its condition would be at an event now that has only the keys."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.between_events.document import node_document
from engine.evaluation.explanation.explaining import reading_at
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.requirements import is_temporal
from engine.evaluation.rules import LiveRule
from engine.language.condition import Condition, Keyed, children


def standing(detector: Detector, rule_id: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the standing verdict of a rule for values of its keys, by name, as plain data.

    Raises Refusal 1201 for the rule.
    """
    rule = detector.rule(rule_id)
    document: dict[str, Any] = {"ruleId": rule.id, "name": rule.name, "enabled": rule.enabled}
    if rule.shadow:
        document["shadow"] = True
    node = standing_node(detector, detector.live[rule_id], key)
    if detector.clock_us is None:
        node = _without_times(node)
    return document | {"node": node_document(node)}


def standing_node(detector: Detector, live: LiveRule, key: Mapping[str, Any]) -> Node:
    """Explain a rule at an event at the detector's clock that has only these keys. Nothing is recorded.

    Values that are not of the rule's own keys are left out.
    """
    given = {name: key[name] for name in keys_of(live.rule.condition) if name in key}
    # No condition looks up a name that begins with `$` among the fields.
    sent = {name[1:]: value for name, value in given.items() if name.startswith("$")}
    with reading_at(detector, detector.clock_us or 0, given, sent) as event:
        return event._replace(tells_since=True).node(live)


def _without_times(node: Node) -> Node:
    """Return a node without times, which mean nothing before the first event."""
    inner, future = tuple(map(_without_times, node.nodes)), node.future._replace(flips=())
    return replace(node, nodes=inner, future=future, witness_us=None, since_us=None)


def keys_of(condition: Condition) -> Iterator[str]:
    """Yield the keys of a rule with this condition: those of each `per` that is under no temporal member."""
    if is_temporal(condition):
        return
    if isinstance(condition, Keyed):
        yield condition.key
    for child in children(condition):
        yield from keys_of(child)
