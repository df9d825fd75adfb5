"""The memories that several operators share, and the usual truth of conditions.

The usual truth of a condition is its truth at an event that meets none of its triggers: `x == 1` is usually
false, `not x == 1` usually true. It depends only on the condition, so equal conditions have equal memories in
every detector.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.evaluation.operators import compare
from engine.evaluation.operators.interface import Found, Memory, Names, Triggers, Writing
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Path
from engine.language import condition as language
from engine.language.condition import Condition, Not
from engine.language.nodes import Node


@dataclass(frozen=True)
class MemoryOfTruth(Memory):
    """A memory of the events at which one condition was true. The outcome is its truth."""

    inner: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        """The condition."""
        return (self.inner,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- the truth suffices
        """Return the expression for the condition's truth."""
        return operands[0]

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        """Return triggers for the events at which the condition is true."""
        return triggers.true(self.inner, path)

    def notable(self, outcome: str) -> tuple[str, str]:
        """Return the test that the condition is true or, if that is usual, that it is false."""
        return (f"not {outcome}", "False") if self.by_exception else (outcome, "True")


@dataclass(frozen=True)
class Latest(MemoryOfTruth):
    """The stamp of the latest event at which inner was true.

    It suffices for every window, because it stays inside longest (after Havelund and Rosu, "Synthesizing
    Monitors for Safety Properties", 2002).
    """

    renews = True

    @property
    def by_exception(self) -> bool:
        return usual(self.inner) is True

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        return triggers.false(self.inner, path) if self.by_exception else triggers.true(self.inner, path)

    def write(self, to: Writing) -> list[str]:
        return [f"if {to.outcome}:", *(f" {line}" for line in to.put(to.stamp))]


def negated(inner: Condition) -> Condition:
    """Return the negation of a condition."""
    return inner.inner if isinstance(inner, Not) else Not(inner)


@dataclass(frozen=True)
class MemoryOfStamps(MemoryOfTruth):
    """The stamps of some events at which one condition was true, in a list, oldest first."""

    is_record = True

    def latest(self, entry: list[int]) -> int:
        return entry[-1]

    def copy(self, entry: list[int]) -> list[int]:
        return entry[:]

    def parts(self, entry: list[int]) -> tuple[Collection[int]]:
        return (entry,)

    def entry_of(self, *parts: Sequence[int]) -> list[int]:
        return list(parts[0])


@dataclass(frozen=True)
class MemoryOfFact(Memory):
    """A record of the values of a fact at events; with `where`, only at events at which that was true.

    The outcome of an event that does not count is None.
    """

    is_record = True
    fact: str
    where: Condition | None = None

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])


# -- what is usual -------------------------------------------------------------------------------------------

_KEPT: Final = 1024


def usual(node: Condition) -> bool | None:
    """Return the usual truth of a condition; None if it is unknown at events that meet no trigger."""
    match node:
        case language.Leaf() | language.Ref() | language.InNetwork() | language.Some() | language.Keyed():
            return False
        case language.InRelation(_, args):
            return False if any(isinstance(one, language.FactArg) for one in args) else None
        case language.Not(inner):
            truth = usual(inner)
            return None if truth is None else not truth
        case _:
            return _usual(node)


# Without a cache, the time would be exponential in the depth.
@lru_cache(_KEPT)
def _usual(node: Condition) -> bool | None:
    match node:
        case language.All(members) | language.Any(members):
            decisive = isinstance(node, language.Any)
            truths = [usual(member) for member in members]
            return decisive if decisive in truths else None if None in truths else not decisive
        case language.Compare():
            return None if compare.true_at(node, _SOME_EVENT, ()) is None else False
        case _:
            operator = operator_of(node)
            assert operator is not None, node
            if operator.true_at(node, _SOME_EVENT, ()) is not None:
                return False
            return None if operator.false_at(node, _SOME_EVENT, ()) is None else True


class _SomeEvent:
    """Finds only whether there are triggers."""

    def of(self, node: Node, path: Path) -> "_SomeEvent":  # noqa: ARG002 -- for all histories
        """Return itself."""
        return self

    def true(self, node: Condition, path: Path) -> Found:  # noqa: ARG002 -- for all paths
        """Return triggers if a condition is usually false."""
        return _SOME if usual(node) is False else None

    def false(self, node: Condition, path: Path) -> Found:  # noqa: ARG002 -- for all paths
        """Return triggers if a condition is usually true."""
        return _SOME if usual(node) is True else None

    def present(self, *_: object) -> Found:
        """Return triggers."""
        return _SOME

    equal = within = present

    def holding(self, memory: Memory, path: Path) -> Found:  # noqa: ARG002 -- for all paths
        """Return triggers, unless nearly every slice has an entry."""
        return None if memory.by_exception else _SOME

    def union(self, parts: Iterable[Found]) -> Found:
        """Return triggers if all parts have some."""
        return None if None in parts else _SOME

    def best(self, parts: Iterable[Found]) -> Found:
        """Return triggers if a part has some."""
        return _SOME if _SOME in parts else None


_SOME: Final[Found] = frozenset()
_SOME_EVENT: Final = _SomeEvent()
