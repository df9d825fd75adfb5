"""What a rule requires of its detector: memories, relations, patterns and literals."""

from typing import Final, NamedTuple

from engine.evaluation.memory import Traits
from engine.evaluation.plan.temporal import (
    HISTORICALLY,
    HISTORICALLY_FOR_STRONG,
    HISTORICALLY_FOR_WEAK,
    ONCE,
    ONCE_WITHIN,
    SINCE,
    SINCE_WITHIN,
    Operator,
)
from engine.evaluation.plan.triggers import regime_of
from engine.language import condition as language
from engine.language.condition import Condition, Keys, children, walk


class Requirements(NamedTuple):
    """The requirements of one condition."""

    size: int
    """The number of its nodes."""
    memories: tuple[tuple[Condition, Keys], ...]
    """Each temporal node and its keys, in the order of `walk`."""
    relations: frozenset[str]
    patterns: frozenset[tuple[str, str]]
    """Each pattern, after the fact that it is matched against."""
    literals: frozenset[tuple[str, str]]
    """Each text of a `contains`, after its fact."""


def requirements_of(condition: Condition, keys: Keys = ()) -> Requirements:
    """Give the requirements of a condition under some keys."""
    nodes = list(walk(condition, keys))
    return Requirements(
        len(nodes),
        tuple((node, path) for node, path in nodes if operator_of(node) is not None),
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


def operands_of(node: Condition) -> dict[str, Condition]:
    """Give the operands of a temporal node, by their names in its operator."""
    names = ("left", "right") if isinstance(node, language.Since | language.SinceWithin) else ("inner",)
    return dict(zip(names, children(node), strict=True))


def temporal_depth(node: Condition) -> int:
    """Give how many temporal nodes are nested in one another at most, this one included."""
    return (operator_of(node) is not None) + max(map(temporal_depth, children(node)), default=0)


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


def can_be_shared(node: Condition) -> bool:
    """Tell whether rules of different births can share one memory of a temporal node.

    They can if the memory is the time of the latest decisive event, and the operands have no memory.
    """
    return operator_of(node) is not HISTORICALLY_FOR_STRONG and temporal_depth(node) == 1


def expiry_of(node: Condition) -> int | None:
    """Give the microseconds until the memory of a temporal node expires, or None if it never does."""
    operator = operator_of(node)
    assert operator is not None, node
    if operator is HISTORICALLY_FOR_STRONG and isinstance(node, language.Windowed) and not node.window_us:
        # Any run is long enough for a window of 0, so its start never matters.
        return -1
    return node.window_us if operator.expires and isinstance(node, language.Windowed) else None


TRAITS: Final = Traits(expiry_of, regime_of, can_be_shared)
"""What a State asks."""
