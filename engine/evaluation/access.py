"""What an event must bring for a rule to notice it: the analysis behind the index.

A rule may sleep through an event if its condition is false there and every memory of it fares as its regime
says. `noticing` gives hints of which at least one is met by every event that a rule must see; None where
there are no such hints. After the access predicates of content-based publish/subscribe (Fabret et al.,
"Filtering Algorithms and Implementation for Very Fast Publish/Subscribe Systems", 2001).
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, assert_never

from engine.evaluation.anatomy import operator_of
from engine.evaluation.facts import key_of
from engine.evaluation.temporal import Regime
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, walk

PRESENT: Final = ("present",)
"""Any value at all."""


class Hit(NamedTuple):
    """Met where a fact has a value, given as `key_of` gives it; or any, if that is PRESENT."""

    fact: str
    value: object
    kind: str = "hit"
    """Named tuples of two types are equal where their members are; hints of two kinds never are."""


class Element(NamedTuple):
    """Met where a fact is an array with an element of that key, or a text that has it, a text, in it."""

    fact: str
    value: object
    kind: str = "element"


class Found(NamedTuple):
    """Met where a pattern is found in the text of a fact."""

    fact: str
    pattern: str
    kind: str = "found"


class Live(NamedTuple):
    """Met where a node remembers something for the slice of the event."""

    node: Condition
    path: tuple[str, ...]
    kind: str = "live"


class Blank(NamedTuple):
    """Met where a node does not know yet when its run of truth began in the slice of the event."""

    node: Condition
    path: tuple[str, ...]
    kind: str = "blank"


Hint = Hit | Element | Found | Live | Blank
Hints = frozenset[Hint]
Cost = Callable[[Hints], float]
"""How many events a set of hints will be met by, roughly; only ever compared."""


def noticing(condition: Condition, cost: Cost) -> Hints | None:
    """Give hints one of which is met by every event that a rule with this condition must see."""
    analysis = _Analysis(cost)
    changes = [analysis.changes(node, path)[1] for node, path in walk(condition) if operator_of(node)]
    return analysis.union([analysis.true(condition, ()), *changes])


def regime_of(node: Condition) -> Regime:
    """Give the regime of a temporal node. It depends on nothing but the node: rules may share its memory."""
    return _ANALYSIS.changes(node, ())[0]


class _Analysis:
    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def union(self, parts: Iterable[Hints | None]) -> Hints | None:
        """One of these may be what is met: all are needed."""
        whole: set[Hint] = set()
        for part in parts:
            if part is None:
                return None
            whole |= part
        return frozenset(whole)

    def best(self, parts: Iterable[Hints | None]) -> Hints | None:
        """Each of these is met: one is enough."""
        known = [part for part in parts if part is not None]
        return min(known, key=self._cost) if known else None

    def true(self, node: Condition, path: tuple[str, ...]) -> Hints | None:
        """Give hints one of which is met wherever `node` is true."""
        match node:
            case language.Leaf(fact, "eq", value) if not isinstance(value, tuple):
                return frozenset({Hit(fact, key_of(value))})
            case language.Leaf(fact, "in", value) if isinstance(value, tuple):
                return frozenset(Hit(fact, key_of(element)) for element in value)
            case language.Leaf(fact, "matches", value):
                return frozenset({Found(fact, str(value))})
            case language.Leaf(fact, "contains", value) if value != "" and not isinstance(value, tuple):
                return frozenset({Element(fact, key_of(value))})
            case language.Leaf(fact):
                return _present(fact)
            case language.Ref(fact, _, reference):
                return self.best([_present(fact), _present(reference)])
            case language.InRelation(_, args):
                return self.best(
                    [_present(argument.fact) for argument in args if isinstance(argument, FactArg)]
                )
            case language.All(members):
                return self.best([self.true(member, path) for member in members])
            case language.Any(members):
                return self.union([self.true(member, path) for member in members])
            case language.Not(inner):
                return self.false(inner, path)
            case language.Keyed(inner, key):
                return self.best([self.true(inner, (*path, key)), _present(key)])
            case language.Once(inner) | language.OnceWithin(inner):
                return self.union([frozenset({Live(node, path)}), self.true(inner, path)])
            case language.Since(_, right) | language.SinceWithin(_, right):
                return self.union([frozenset({Live(node, path)}), self.true(right, path)])
            case language.Historically(inner) | language.HistoricallyFor(inner):
                return self.true(inner, path)
            case _:
                assert_never(node)

    def false(self, node: Condition, path: tuple[str, ...]) -> Hints | None:
        """Give hints one of which is met wherever `node` is false."""
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
                # It may be false because the run of truth is still too young, and every event ages it.
                return None
            case language.Historically(inner) | language.HistoricallyFor(inner):
                return self.union([frozenset({Live(node, path)}), self.false(inner, path)])
            case _:
                # A missing fact makes a predicate false, and nothing in an event says that a fact is missing.
                return None

    def changes(self, node: Condition, path: tuple[str, ...]) -> tuple[Regime, Hints | None]:
        """Give a temporal node's regime, and hints one of which is met where its memory fares otherwise."""
        match node:
            case language.Once(inner) | language.OnceWithin(inner):
                return _either(self.true(inner, path), self.false(inner, path))
            case language.Since(left, right) | language.SinceWithin(left, right):
                begins = self.true(right, path)
                ends = self.best([self.false(left, path), frozenset({Live(node, path)})])
                return _either(self.union([begins, ends]), self.false(right, path))
            case language.HistoricallyFor(inner, _, "strong"):
                begins = self.true(inner, path)
                ends = self.best([self.false(inner, path), frozenset({Live(node, path)})])
                kept = self.union([begins, ends])
                if kept is not None:
                    return Regime.KEPT, kept
                begun = self.union([self.false(inner, path), frozenset({Blank(node, path)})])
                return (Regime.SEEN if begun is None else Regime.BEGUN), begun
            case language.Historically(inner) | language.HistoricallyFor(inner):
                return _either(self.false(inner, path), self.true(inner, path))
            case _:
                raise AssertionError(node)


_ANALYSIS: Final = _Analysis(len)


def _present(fact: str) -> Hints:
    return frozenset({Hit(fact, PRESENT)})


def _either(kept: Hints | None, stamped: Hints | None) -> tuple[Regime, Hints | None]:
    if kept is not None:
        return Regime.KEPT, kept
    if stamped is not None:
        return Regime.STAMPED, stamped
    return Regime.SEEN, None
