"""The smallest set of predicates that, negated at this event, would change a verdict.

Negating a predicate negates it wherever it stands in the condition. If no predicate stands twice, the
smallest set follows from those of the members. Otherwise sets are tried, the smallest first. This takes
exponential time, so it stops at a bound, and may return a set that is not the smallest.
"""

from collections.abc import Iterator
from functools import reduce
from itertools import chain, combinations, islice, product
from typing import Final

from engine.evaluation.explanation.nodes import Node
from engine.language import condition as language
from engine.language.condition import Condition

_Predicates = frozenset[Condition]

TRIED_MAX: Final = 50_000
"""The most nodes that are evaluated anew to try sets of predicates."""


def why_not(root: Node) -> tuple[Condition, ...] | None:
    """Return the smallest set in document order, or None if no set changes the verdict."""
    leaves = list(_leaves(root))
    order = list(dict.fromkeys(leaves))
    found = _smallest(root)
    if len(order) < len(leaves):
        found = _tried(root, order, found)
    return None if found is None else tuple(leaf for leaf in order if leaf in found)


def _leaves(node: Node) -> Iterator[Condition]:
    if node.nodes:
        yield from chain.from_iterable(map(_leaves, node.nodes))
    elif _is_predicate(node.condition):
        yield node.condition


def _is_predicate(condition: Condition) -> bool:
    return isinstance(condition, language.Leaf | language.Ref | language.InRelation)


def _smallest(node: Node) -> _Predicates | None:
    """Return the smallest set that changes a node in which no predicate stands twice."""
    if not node.nodes:
        return frozenset([node.condition]) if _is_predicate(node.condition) else None
    sets = [_smallest(member) for member in node.nodes]
    match node.condition:
        case language.All() | language.Any():
            decisive = isinstance(node.condition, language.Any)
            if node.verdict is decisive:
                deciding = [place for place, member in enumerate(node.nodes) if member.verdict is decisive]
                return _union([sets[place] for place in deciding])
            return min((one for one in sets if one is not None), key=len, default=None)
        case _:
            return _smallest_of_few(node, sets)


def _smallest_of_few(node: Node, sets: list[_Predicates | None]) -> _Predicates | None:
    """Return the smallest set for a node with few members, by all combinations of members that change."""
    assert node.decide is not None, "a node with members says how they decide"
    best: _Predicates | None = None
    for chosen in product((False, True), repeat=len(sets)):
        truths = tuple(member.verdict is not flips for member, flips in zip(node.nodes, chosen, strict=True))
        if node.decide(truths) is not node.verdict:
            found = _union([one for one, flips in zip(sets, chosen, strict=True) if flips])
            if found is not None and (best is None or len(found) < len(best)):
                best = found
    return best


def _union(sets: list[_Predicates | None]) -> _Predicates | None:
    start: _Predicates | None = frozenset()
    return reduce(lambda one, other: None if one is None or other is None else one | other, sets, start)


def _tried(root: Node, leaves: list[Condition], candidate: _Predicates | None) -> _Predicates | None:
    """Return the smallest set that changes the verdict; at the bound, the candidate if it does."""
    if candidate is not None and _truth(root, candidate) is root.verdict:
        candidate = None
    sizes = range(1, len(leaves) + 1 if candidate is None else len(candidate))
    several = chain.from_iterable(combinations(leaves, size) for size in sizes)
    for tried in map(frozenset, islice(several, TRIED_MAX // _size(root))):
        if _truth(root, tried) is not root.verdict:
            return tried
    return candidate


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node.nodes))


def _truth(node: Node, flipped: _Predicates) -> bool:
    """Return the verdict of a node with some predicates negated."""
    if node.decide is None:
        return node.verdict is not (node.condition in flipped)
    return node.decide(tuple(_truth(member, flipped) for member in node.nodes))
