"""The memories, relations, patterns and literals that a rule requires of its detector."""

from functools import lru_cache
from typing import NamedTuple

from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Filter, Path, on
from engine.language import condition as language
from engine.language.condition import Condition, Keyed, children, walk


class Requirements(NamedTuple):
    """The requirements of one condition."""

    size: int
    """The number of its nodes."""
    memories: tuple[tuple[Condition, Path], ...]
    """Each temporal node and its path, in the order of `walk`."""
    relations: frozenset[str]
    patterns: frozenset[tuple[str, str]]
    """Each pattern, after the fact that it is matched against."""
    literals: frozenset[tuple[str, str]]
    """Each text of a `contains`, after its fact."""


# Adding a rule asks several times, and a process often activates the same detectors again.
@lru_cache(64)
def requirements_of(condition: Condition, birth: int = 0, path: Path = ()) -> Requirements:
    """Return the requirements of a condition under a path, for rules of one birth."""
    nodes = list(walk(condition, ()))
    memories, relations, patterns, literals = [], set(), set(), set()
    for node, keys in nodes:
        match node:
            case language.InRelation():
                relations.add(node.relation)
            case language.Leaf(fact, "matches", value):
                patterns.add((fact, str(value)))
            case language.Leaf(fact, "contains", str() as value) if value:
                literals.add((fact, value))
            case language.Leaf():
                pass
            case _ if is_temporal(node):
                memories.append((node, (*path, *on(keys, birth))))
    return Requirements(
        len(nodes), tuple(memories), frozenset(relations), frozenset(patterns), frozenset(literals)
    )


def is_temporal(node: Condition) -> bool:
    """Return whether a node has a memory."""
    return operator_of(node) is not None


def temporal_depth(node: Condition) -> int:
    """Return how many temporal nodes are nested in one another at most, this one included."""
    if isinstance(node, Keyed) and node.where is not None:
        # The slices of inner are known only once `where` is.
        return temporal_depth(node.where) + temporal_depth(node.inner)
    return is_temporal(node) + max(map(temporal_depth, children(node)), default=0)


def path_depth(path: Path) -> int:
    """Return how many memories come one after another before the slices of an event are known."""
    return sum(temporal_depth(step.where) for step in path if isinstance(step, Filter))


def size_of(node: Condition) -> int:
    """Return the number of nodes of a temporal node, without temporal nodes inside it."""
    return 1 + sum(size_of(child) for child in children(node) if not is_temporal(child))


def lookback_us(condition: Condition) -> int | None:
    """Return how far back events can matter for a condition, in microseconds; None without a bound."""
    inner = [lookback_us(child) for child in children(condition)]
    if None in inner:
        return None
    known = [each for each in inner if each is not None]
    # `where` looks back from each event of the slices that the inner condition looks back at.
    furthest = sum(known) if isinstance(condition, Keyed) else max(known, default=0)
    operator = operator_of(condition)
    if operator is None:
        return furthest
    back_us = operator.lookback_us(condition)
    return None if back_us is None else furthest + back_us
