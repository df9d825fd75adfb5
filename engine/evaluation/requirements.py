"""What a rule requires of its detector: memories, relations, patterns and literals."""

from typing import NamedTuple

from engine.evaluation.temporal import (
    HISTORICALLY,
    HISTORICALLY_FOR_STRONG,
    HISTORICALLY_FOR_WEAK,
    ONCE,
    ONCE_WITHIN,
    SINCE,
    SINCE_WITHIN,
    Operator,
)
from engine.language import condition as language
from engine.language.condition import Condition, Keys, walk


class Requirements(NamedTuple):
    """The requirements of one condition."""

    size: int
    """The number of its nodes."""
    memories: tuple[tuple[Condition, Keys, int | None], ...]
    """Each temporal node in the order of `walk`, its keys, and the microseconds until its memory expires."""
    relations: frozenset[str]
    patterns: frozenset[tuple[str, str]]
    """Each pattern, after the fact that it is matched against."""
    literals: frozenset[tuple[str, str]]
    """Each text of a `contains`, after its fact."""


def requirements_of(condition: Condition) -> Requirements:
    """Give the requirements of a condition."""
    nodes = list(walk(condition))
    return Requirements(
        len(nodes),
        tuple(
            (node, path, _expiry(node, operator))
            for node, path in nodes
            if (operator := operator_of(node)) is not None
        ),
        frozenset(node.relation for node, _ in nodes if isinstance(node, language.InRelation)),
        frozenset(
            (node.fact, str(node.value))
            for node, _ in nodes
            if isinstance(node, language.Leaf) and node.op == "matches"
        ),
        frozenset(
            (node.fact, node.value)
            for node, _ in nodes
            if isinstance(node, language.Leaf) and node.op == "contains" and isinstance(node.value, str)
            if node.value
        ),
    )


def operator_of(node: Condition) -> Operator | None:
    """Give the temporal operator of a node, or None if it has none."""
    match node:
        case language.Once():
            return ONCE
        case language.Historically():
            return HISTORICALLY
        case language.Since():
            return SINCE
        case language.OnceWithin():
            return ONCE_WITHIN
        case language.HistoricallyFor(_, _, "strong"):
            return HISTORICALLY_FOR_STRONG
        case language.HistoricallyFor():
            return HISTORICALLY_FOR_WEAK
        case language.SinceWithin():
            return SINCE_WITHIN
        case _:
            return None


def _expiry(node: Condition, operator: Operator) -> int | None:
    if operator is HISTORICALLY_FOR_STRONG and isinstance(node, language.Windowed) and not node.window_us:
        # Every run is long enough for a window of 0, so its start never matters.
        return -1
    return node.window_us if operator.expires and isinstance(node, language.Windowed) else None
