"""Triggers: which events a rule must be evaluated at, and which must update a memory.

A rule may skip an event at which its condition is false. A memory may skip an event that changes it only as
its regime says. Every other event meets at least one trigger. If no triggers ensure that, no event is
skipped. Triggers are the access predicates of content-based publish/subscribe (Fabret et al., "Filtering
Algorithms and Implementation for Very Fast Publish/Subscribe Systems", 2001).
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from engine.evaluation.facts.values import key_of
from engine.evaluation.memory import Regime
from engine.evaluation.paths import Path, step_of
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, ScaledFact

Comparison: TypeAlias = language.Count | language.Distinct | language.Sum | language.Avg
"""The nodes that compare a number over the past."""

PRESENT: Final = ("present",)
"""Stands for any value of a fact."""


class Hit(NamedTuple):
    """Met if a fact has this value, in the form of `key_of`; if it is PRESENT, any value."""

    fact: str
    value: object
    kind: str = "hit"
    """Distinguishes the types: named tuples of different types are equal if their fields are."""


class Range(NamedTuple):
    """Met if a fact is from `low` to `high`. Both are numbers, or both are texts."""

    fact: str
    low: str | float
    high: str | float
    kind: str = "range"


class Element(NamedTuple):
    """Met if a fact is an array with an element of this key, or a text that contains this text."""

    fact: str
    value: object
    kind: str = "element"


class Found(NamedTuple):
    """Met if the pattern matches the text of a fact."""

    fact: str
    pattern: str
    kind: str = "found"


class Holding(NamedTuple):
    """Met if the memory of a node holds a time for the event's slice."""

    node: Condition
    path: Path
    kind: str = "holding"


class Unstarted(NamedTuple):
    """Met if the memory of a node has no start of a run for the event's slice."""

    node: Condition
    path: Path
    kind: str = "unstarted"


COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "eq": operator.eq,
    "neq": operator.ne,
}

Trigger = Hit | Range | Element | Found | Holding | Unstarted
Triggers = frozenset[Trigger]
Cost = Callable[[Triggers], float]
"""Estimates how many events meet a set of triggers. Only comparisons of estimates matter."""


def may_meet_several(triggers: Triggers | None) -> bool:
    """Return whether one event may meet several of the triggers. A fact has only one value at a time."""
    if triggers is None or len(triggers) == 1:
        return False
    facts = {
        trigger.fact if isinstance(trigger, Hit) and trigger.value is not PRESENT else None
        for trigger in triggers
    }
    return len(facts) > 1 or None in facts


def regime_of(node: Condition) -> Regime:
    """Return the regime of a temporal node. It depends only on the node, so all rules agree on it."""
    if len(_REGIMES.found) > _FOUND_MAX:
        _REGIMES.found = {}
    return _REGIMES.changes(node, ())[0]


class Analysis:
    """Finds the triggers of a rule of some birth and of its memories.

    It looks at each part of the condition once, however deep temporal nodes are nested in one another.
    """

    def __init__(self, birth: int, cost: Cost) -> None:
        self._birth = birth
        self._cost = cost
        self.found: dict[tuple[int, Path, bool], tuple[Condition, Triggers | None]] = {}
        """What is known by now, by the id of a node, path and truth. Equality of nodes would compare all that
        is in them. The node is kept, so that its id remains its own."""

    def of_rule(self, condition: Condition) -> Triggers | None:
        """Return triggers such that any event at which the rule fires meets one; None for all events."""
        return self.true(condition, ())

    def of_memory(self, node: Condition, path: Path) -> Triggers | None:
        """Return triggers for the events that change a memory otherwise than its regime says, or None."""
        return self.changes(node, path)[1]

    def union(self, parts: Iterable[Triggers | None]) -> Triggers | None:
        """Return the triggers of all parts, for an event that meets at least one; None if one part is."""
        whole: set[Trigger] = set()
        for part in parts:
            if part is None:
                return None
            whole |= part
        return frozenset(whole)

    def best(self, parts: Iterable[Triggers | None]) -> Triggers | None:
        """Return the triggers of the cheapest part, for an event that meets every part."""
        known = [part for part in parts if part is not None]
        return min(known, key=self._cost) if known else None

    def true(self, node: Condition, path: Path) -> Triggers | None:
        """Return triggers such that any event at which the node is true meets one."""
        found, name = self.found, (id(node), path, True)
        if name not in found:
            found[name] = node, self._true(node, path)
        return found[name][1]

    def false(self, node: Condition, path: Path) -> Triggers | None:
        """Return triggers such that any event at which the node is false meets one."""
        found, name = self.found, (id(node), path, False)
        if name not in found:
            found[name] = node, self._false(node, path)
        return found[name][1]

    def _true(self, node: Condition, path: Path) -> Triggers | None:
        match node:
            case language.Leaf(fact, "eq", value) if not isinstance(value, tuple):
                return frozenset({Hit(fact, key_of(value))})
            case language.Leaf(fact, "in", value) if isinstance(value, tuple):
                return frozenset(Hit(fact, key_of(element)) for element in value)
            case language.Leaf(fact, "matches", value):
                return frozenset({Found(fact, str(value))})
            case language.Leaf(fact, "contains", value) if value != "" and not isinstance(value, tuple):
                return frozenset({Element(fact, key_of(value))})
            case language.Leaf(fact, "between"):
                return _within([node])
            case language.Leaf(fact):
                return _present(fact)
            case language.Ref(fact, _, reference):
                return self.best([_present(fact), _present(reference)])
            case language.InRelation(_, args):
                return self.best(
                    [_present(argument.fact) for argument in args if isinstance(argument, FactArg)]
                )
            case language.All(members):
                return self.best([*_ranges(node), *(self.true(member, path) for member in members)])
            case language.Any(members):
                return self.union([self.true(member, path) for member in members])
            case language.Not(inner):
                return self.false(inner, path)
            case language.Keyed(inner, key, where):
                parts = [self.true(inner, (*path, step_of(node, self._birth))), _present(key)]
                return self.best(parts if where is None else [*parts, self.true(where, path)])
            case language.Once(inner) | language.OnceWithin(inner):
                return self.union([frozenset({Holding(node, path)}), self.true(inner, path)])
            case language.Since(_, right) | language.SinceWithin(_, right):
                return self.union([frozenset({Holding(node, path)}), self.true(right, path)])
            case language.Historically(inner) | language.HistoricallyFor(inner):
                return self.true(inner, path)
            case language.Previous() | language.Earlier() | language.EarlierWithin():
                return frozenset({Holding(node, path)})
            case language.Count() | language.Distinct() | language.Sum() | language.Avg():
                return self._compares(node, path)
            case _:
                assert_never(node)

    def _compares(self, node: Comparison, path: Path) -> Triggers | None:
        """Return triggers such that any event at which a comparison over the past is true meets one."""
        if isinstance(node.value, ScaledFact):
            limited, empty = _present(node.value.fact), True
        else:
            limited, empty = None, COMPARISONS[node.op](0, node.value)
        some = None
        if isinstance(node, language.Avg) or not empty:
            some = self.union([frozenset({Holding(node, path)}), self._adds(node, path)])
        return self.best([limited, some])

    def _adds(self, node: Comparison, path: Path) -> Triggers | None:
        """Return triggers such that any event that counts for a node meets one."""
        if isinstance(node, language.Count):
            return self.true(node.inner, path)
        parts = [_present(node.fact)]
        return self.best(parts if node.where is None else [*parts, self.true(node.where, path)])

    def _false(self, node: Condition, path: Path) -> Triggers | None:
        match node:
            case language.Not(inner):
                return self.true(inner, path)
            case language.All(members):
                return self.union([self.false(member, path) for member in members])
            case language.Any(members):
                return self.best([self.false(member, path) for member in members])
            case language.Once(inner) | language.OnceWithin(inner):
                return self.false(inner, path)
            case language.Since(_, right) | language.SinceWithin(_, right):
                return self.false(right, path)
            case language.HistoricallyFor(_, _, "strong"):
                # It can be false at any event, because the run is still too short.
                return None
            case language.Historically(inner) | language.HistoricallyFor(inner):
                return self.union([frozenset({Holding(node, path)}), self.false(inner, path)])
            case _:
                # A predicate is false if its fact is missing, and no trigger is met by a missing fact.
                return None

    def changes(self, node: Condition, path: Path) -> tuple[Regime, Triggers | None]:
        """Return a temporal node's regime, and triggers for the events that change its memory otherwise."""
        match node:
            case language.Once(inner) | language.OnceWithin(inner):
                return _either(self.true(inner, path), lambda: self.false(inner, path))
            case language.Since(left, right) | language.SinceWithin(left, right):
                begins = self.true(right, path)
                ends = self.best([self.false(left, path), frozenset({Holding(node, path)})])
                return _either(self.union([begins, ends]), lambda: self.false(right, path))
            case language.HistoricallyFor(inner, _, "strong"):
                begins = self.true(inner, path)
                ends = self.best([self.false(inner, path), frozenset({Holding(node, path)})])
                changing = self.union([begins, ends])
                if changing is not None:
                    return Regime.UNCHANGED, changing
                begun = self.union([self.false(inner, path), frozenset({Unstarted(node, path)})])
                return (Regime.SEEN if begun is None else Regime.BEGUN), begun
            case language.Historically(inner) | language.HistoricallyFor(inner):
                return _either(self.false(inner, path), lambda: self.true(inner, path))
            case language.Earlier(inner) | language.EarlierWithin(inner):
                return Regime.UNCHANGED, self.true(inner, path)
            case language.Previous(inner):
                changing = self.union([self.true(inner, path), frozenset({Holding(node, path)})])
                return Regime.UNCHANGED, changing
            case language.Count() | language.Distinct() | language.Sum() | language.Avg():
                return Regime.UNCHANGED, self._adds(node, path)
            case _:
                raise AssertionError(node)


class _Regimes(Analysis):
    """Tells only whether there are triggers: it gives an empty set in their place."""

    def union(self, parts: Iterable[Triggers | None]) -> Triggers | None:
        """Return None if one part is."""
        return None if any(part is None for part in parts) else _NO_TRIGGERS


_NO_TRIGGERS: Final[Triggers] = frozenset()
_REGIMES: Final = _Regimes(0, len)
_FOUND_MAX: Final = 10_000
"""The most nodes of which the regimes of earlier rules are remembered; one rule may add as many as it has."""


def _present(fact: str) -> Triggers:
    return frozenset({Hit(fact, PRESENT)})


def _ranges(node: language.All) -> list[Triggers]:
    """Return one trigger for all `between` on one fact, where there are several: `x > 1 and x < 5`."""
    by_fact: dict[str, list[language.Leaf]] = {}
    pending = [node]
    while pending:
        for member in pending.pop().members:
            if isinstance(member, language.All):
                pending.append(member)
            elif isinstance(member, language.Leaf) and member.op == "between":
                by_fact.setdefault(member.fact, []).append(member)
    return [_within(leaves) for leaves in by_fact.values() if len(leaves) > 1]


def _within(leaves: list[language.Leaf]) -> Triggers:
    """Return the trigger for events at which all of these `between` on one fact are true, or none."""
    values: list[Any] = [leaf.value for leaf in leaves]
    if len({isinstance(low, str) for low, _ in values}) > 1:
        return frozenset()
    low = max(low for low, _ in values)
    high = min(high for _, high in values)
    return frozenset({Range(leaves[0].fact, low, high)} if low <= high else ())


def _either(
    changing: Triggers | None, stamped: Callable[[], Triggers | None]
) -> tuple[Regime, Triggers | None]:
    if changing is not None:
        return Regime.UNCHANGED, changing
    others = stamped()
    return (Regime.SEEN if others is None else Regime.STAMPED), others
