"""A condition taken apart: its nodes with the keys around each, what it remembers, what it asks the world."""

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


class Anatomy(NamedTuple):
    """What a rule needs kept for it, and what is remarked about it."""

    size: int
    """How many nodes it has."""
    memories: tuple[tuple[Condition, Keys, int | None], ...]
    """Each temporal node, its path, and after how many microseconds what it remembers has expired."""
    relations: frozenset[str]
    patterns: frozenset[tuple[str, str]]
    """The names whose texts are tried against patterns, with each pattern."""
    literals: frozenset[tuple[str, str]]
    """The names whose values are asked whether they contain a text, with each text."""


def anatomy(condition: Condition) -> Anatomy:
    """Give the anatomy of a condition."""
    nodes = list(walk(condition))
    return Anatomy(
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
    """Give the temporal operator of a node, None for any other node."""
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
        # A run of no length: since when it lasts makes no difference, at no time.
        return -1
    return node.window_us if operator.expires and isinstance(node, language.Windowed) else None
