"""Standing verdicts: what a condition would be at an event now that has only the keys."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.explaining import firings_ahead, reading_at
from engine.evaluation.explanation.looking.holdings import (
    KeyPlace,
    SeenKey,
    is_known,
    key_of,
    keys_from,
    seen_key,
)
from engine.evaluation.explanation.nodes import Future, Node, node_document
from engine.evaluation.facts.values import Event
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import is_temporal, requirements_of
from engine.evaluation.rules import LiveRule
from engine.evaluation.slices.slices import Slices
from engine.evaluation.times import milliseconds
from engine.language.condition import Condition, Keyed, children
from engine.language.diagnostics import Entry, Refusal, quoted


def standing(detector: Detector, rule_id: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the standing verdict of a rule for values of its keys, by name, as plain data.

    Of a timed rule, it says when the rule fires by time if no event comes: `fires_ms`.
    Raises Refusal 1201 for the rule.
    """
    rule = detector.rule(rule_id)
    document: dict[str, Any] = {"ruleId": rule.id, "name": rule.name, "enabled": rule.enabled}
    if rule.shadow:
        document["shadow"] = True
    live = detector.live[rule_id]
    node = standing_node(detector, live, key)
    if detector.clock_us is None:
        node = _without_times(node)
    elif rule.priority in detector.timing.watches:
        ahead = firings_ahead(detector.fork([_event(live, key)], [live]))
        if rule_id in ahead:
            document["fires_ms"] = milliseconds(ahead[rule_id])
    return document | {"node": node_document(node)}


def standing_node(detector: Detector, live: LiveRule, key: Mapping[str, Any]) -> Node:
    """Explain a rule at an event at the detector's clock that has only these keys. Nothing is recorded.

    Values that are not of the rule's own keys are left out.
    """
    given, _, sent = _event(live, key)
    try:
        event = reading_at(detector, detector.clock_us or 0, given, sent or {})
        return event._replace(tells_since=True).node(live)
    finally:
        detector.forget_lookups()


def _event(live: LiveRule, key: Mapping[str, Any]) -> Event:
    given = {name: key[name] for name in keys_of(live.rule.condition) if name in key}
    # No condition looks up a name that begins with `$` among the fields.
    return given, 0, {name[1:]: value for name, value in given.items() if name.startswith("$")}


def _without_times(node: Node) -> Node:
    """Return a node without times, which mean nothing before the first event."""
    inner, future = tuple(map(_without_times, node.nodes)), Future(node.future.verdict)
    return replace(node, nodes=inner, future=future, witness_us=None, since_us=None)


def keys_of(condition: Condition) -> Iterator[str]:
    """Yield the keys of a rule with this condition: those of each `per` that is under no temporal member."""
    if is_temporal(condition):
        return
    if isinstance(condition, Keyed):
        yield condition.key
    for child in children(condition):
        yield from keys_of(child)


# -- the keys for which a rule is true ----------------------------------------------------------------------

NODES_AT_ONCE: Final = 200
"""About the most nodes that are explained in one call, which takes some milliseconds."""


def true_keys(
    detector: Detector, rule_id: str, prefix: str, limit: int, place: KeyPlace
) -> tuple[list[SeenKey], KeyPlace | None]:
    """Read some live keys of a rule, from a place on.

    Return those for which it is true, in an order of this process, and where to continue. A key has
    the prefix if the value of one of its facts begins with it. Keys of which only a digest is known are left
    out. Raises Refusal 1201 for an unknown rule, and 1400 if nothing is remembered for all its keys together.
    """
    detector.rule(rule_id)
    live = detector.live[rule_id]
    names = [*dict.fromkeys(keys_of(live.rule.condition))]
    if not live.rule.enabled:
        return [], None
    if not names:
        stands = standing_node(detector, live, {}).verdict
        return [SeenKey(detector.events_seen, 0, {}, 0)] if stands else [], None
    paths = _paths_of(live, names)
    if not paths:
        said = f"nothing is remembered for values of {', '.join(map(quoted, names))} together"
        raise Refusal(Entry(1400, f"the keys for which the rule is true cannot be listed: {said}"))
    if place.path >= len(paths):
        return [], None
    slices = [detector.histories.slices[path] for path in paths[: place.path + 1]]
    own = slices.pop()

    def is_true(key: Hashable) -> bool:
        if not is_known(own, key):
            return False
        values = key_of(own, key)
        return (
            not any(_has(other, values) for other in slices) and standing_node(detector, live, values).verdict
        )

    tried_max = max(1, NODES_AT_ONCE // requirements_of(live.rule.condition).size)
    keys, slot = keys_from(own, place.slot, prefix, limit=limit, tried_max=tried_max, is_listed=is_true)
    after = KeyPlace(place.path + 1) if slot is None else KeyPlace(place.path, slot)
    return [seen_key(own, place.path, key) for key in keys], after if after.path < len(paths) else None


def _paths_of(live: LiveRule, names: list[str]) -> list[Path]:
    """Return the paths of a rule's memories that have all its keys and no others."""
    parts = requirements_of(live.rule.condition, live.births)
    paths = dict.fromkeys(use.path for use in parts.memories)
    return [path for path in paths if {*map(fact_of, path)} == set(names)]


def _has(slices: Slices, key: dict[str, Any]) -> bool:
    sent = {name[1:]: value for name, value in key.items() if name.startswith("$")}
    return slices.find(slices.key_at(key, sent)) is not None
