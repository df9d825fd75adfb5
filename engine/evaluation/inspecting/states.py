"""Requests for the state of a detector, and their answers as JSON; and standing verdicts.

A standing verdict is the verdict of a condition at an event now that has only the keys.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, assert_never

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.explaining import firings_ahead, reading_at
from engine.evaluation.explanation.nodes import Future, Node, node_document
from engine.evaluation.facts.values import Event
from engine.evaluation.inspecting.holdings import (
    FIRST,
    KeyPlace,
    SeenKey,
    costliest,
    is_known,
    key_of,
    keys_from,
    listed_keys,
    memories,
    overview,
    rules,
    seen_key,
    seen_keys,
)
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import keys_of, requirements_of
from engine.evaluation.rules import LiveRule
from engine.evaluation.slices.slices import Slices
from engine.evaluation.timed.table import event_of
from engine.evaluation.times import milliseconds
from engine.evaluation.wire.events import Done
from engine.language.condition import Scalar
from engine.language.diagnostics import Entry, Refusal, quoted
from engine.language.json.writer import json_bytes


def standing(detector: Detector, rule_id: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the standing verdict of a rule for the values of its keys, as plain data.

    For a timed rule, `fires_ms` is when it fires by time if no event comes. Raises Refusal 1201 for an
    unknown rule.
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
    """Explain a rule at an event at the detector's clock that has only these keys. Record nothing.

    Values of keys that the rule does not have are ignored.
    """
    given, _, sent = _event(live, key)
    try:
        event = reading_at(detector, detector.clock_us or 0, given, sent or {})
        return event._replace(tells_since=True).node(live)
    finally:
        detector.forget_lookups()


def _event(live: LiveRule, key: Mapping[str, Any]) -> Event:
    fields, sent = event_of({name: key[name] for name in keys_of(live.rule.condition) if name in key})
    return fields, 0, sent


def _without_times(node: Node) -> Node:
    """Return a node without times, which are meaningless before the first event."""
    inner, future = tuple(map(_without_times, node.nodes)), Future(node.future.verdict)
    return replace(node, nodes=inner, future=future, witness_us=None, since_us=None)


# -- the keys for which a rule is true ----------------------------------------------------------------------

NODES_AT_ONCE: Final = 200
"""The approximate maximum number of nodes explained in one call, which takes some milliseconds."""


def true_keys(
    detector: Detector, rule_id: str, prefix: str, limit: int, place: KeyPlace
) -> tuple[list[SeenKey], KeyPlace | None]:
    """Read some live keys of a rule, from a place on. Return those for which it is true, and where to go on.

    The order holds for this process only. A key matches the prefix if the value of one of its facts starts
    with it. Keys of which only a digest is known are left out. Raises Refusal 1201 for an unknown rule, and
    1400 if the rule remembers nothing for all its keys together.
    """
    detector.rule(rule_id)
    live = detector.live[rule_id]
    names = [*keys_of(live.rule.condition)]
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
    """Return the paths of a rule's memories that have exactly its keys."""
    parts = requirements_of(live.rule.condition, live.births)
    paths = dict.fromkeys(use.path for use in parts.memories)
    return [path for path in paths if {*map(fact_of, path)} == set(names)]


def _has(slices: Slices, key: dict[str, Any]) -> bool:
    return slices.find(slices.key_at(*event_of(key))) is not None


# -- requests -----------------------------------------------------------------------------------------------

PAGE: Final = 100
"""The default number of entries of a page."""


class StateAsked(msgspec.Struct):
    """What is requested: the figures, a page of a list, or the tree of a rule."""

    about: Literal["all", "keys", "seen", "nodes", "rules", "costs", "rule", "true"] = "all"
    prefix: str = ""
    limit: int = PAGE
    after: tuple[int, int] | None = None
    """The last entry before the page: the event and the path of a key, the number of a node or a rule, or the
    cost and the number of a rule."""
    place: KeyPlace = KeyPlace()
    """Where reading keys or rules continues."""
    rule_id: str = ""
    key: dict[str, Scalar] = {}


class Ranked(msgspec.Struct):
    """The part of a long list that one call has read, and where the next call continues."""

    entries: list[tuple[int, int, msgspec.Raw]]
    """Two numbers to sort by, and the entry as shown. For a key: its last event and its path. For a rule: its
    cost and its number. The highest first number comes first; among equal ones, the lowest second number."""
    place: KeyPlace | None = None


def state_of(detector: Detector, payload: bytes) -> Done:
    """Return what is requested. Raises Refusal 1201 for an unknown rule, 1400 if keys cannot be listed."""
    asked = msgspec.json.decode(payload, type=StateAsked)
    return Done(json_bytes(_document(detector, asked)))


def _document(detector: Detector, asked: StateAsked) -> dict[str, Any]:
    match asked.about:
        case "all":
            return overview(detector)
        case "keys":
            return _keys(*listed_keys(detector.histories, asked.prefix, asked.limit, asked.place))
        case "seen":
            before = asked.after or FIRST
            return _keys(*seen_keys(detector.histories, asked.prefix, before, asked.limit, asked.place))
        case "true":
            return _keys(*true_keys(detector, asked.rule_id, asked.prefix, asked.limit, asked.place))
        case "nodes":
            nodes = memories(detector, _number(asked), asked.limit)
            more = {"after": str(_number(asked) + len(nodes))} if len(nodes) == asked.limit else {}
            return {"nodes": nodes, **more}
        case "rules":
            listed, after = rules(detector, asked.prefix, _number(asked), asked.limit)
            return {"rules": listed, **({} if after is None else {"after": str(after)})}
        case "costs":
            before = asked.after or FIRST
            most, after = costliest(detector, asked.prefix, before, asked.limit, asked.place.slot)
            return {"entries": most, "place": None if after is None else KeyPlace(slot=after)}
        case "rule":
            clock_us = detector.clock_us
            clock = {} if clock_us is None else {"clock_ms": milliseconds(clock_us)}
            return clock | standing(detector, asked.rule_id, asked.key)
        case _:
            assert_never(asked.about)


def _keys(found: list[SeenKey], place: KeyPlace | None) -> dict[str, Any]:
    keys = [
        (one.event, one.path, {"key": one.key, "last_event": one.event, "memories": one.memories})
        for one in found
    ]
    return {"entries": keys, "place": place}


def after_of(text: str) -> tuple[int, int]:
    """Parse the `after` that a page returned."""
    number, _, path = text.partition("-")
    return int(number), int(path or 0)


def _number(asked: StateAsked) -> int:
    return 0 if asked.after is None else asked.after[0]
