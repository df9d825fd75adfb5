"""What a condition usually is: its truth at an event that meets none of its triggers.

`x == 1` is usually false, `not x == 1` usually true. It follows from the condition alone, so equal conditions
are remembered alike in every detector.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from engine.evaluation.operators import compare
from engine.evaluation.operators.interface import Found, Memory
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Path
from engine.language import condition as language
from engine.language.condition import Condition, Scalar
from engine.language.nodes import Node

_KEPT: Final = 1024


@lru_cache(_KEPT)
def usual(node: Condition) -> bool | None:
    """Return what a condition usually is; None if nothing is known of events that meet no trigger."""
    match node:
        case language.Leaf() | language.Ref() | language.InNetwork() | language.Some() | language.Keyed():
            return False
        case language.InRelation(_, args):
            return False if any(isinstance(one, language.FactArg) for one in args) else None
        case language.Not(inner):
            truth = usual(inner)
            return None if truth is None else not truth
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
    """Tells only whether there are triggers."""

    def of(self, node: Node, path: Path) -> "_SomeEvent":  # noqa: ARG002 -- the same in all histories
        """Return the same."""
        return self

    def true(self, node: Condition, path: Path) -> Found:  # noqa: ARG002 -- under all paths
        """Return triggers if a condition is usually false."""
        return _SOME if usual(node) is False else None

    def false(self, node: Condition, path: Path) -> Found:  # noqa: ARG002 -- the same
        """Return triggers if a condition is usually true."""
        return _SOME if usual(node) is True else None

    def present(self, fact: str) -> Found:  # noqa: ARG002 -- whatever the fact
        """Return triggers."""
        return _SOME

    def equal(self, fact: str, value: Scalar) -> Found:  # noqa: ARG002 -- the same
        """Return triggers."""
        return _SOME

    def within(self, fact: str, low: float, high: float) -> Found:  # noqa: ARG002 -- the same
        """Return triggers."""
        return _SOME

    def holding(self, memory: Memory, path: Path) -> Found:  # noqa: ARG002 -- under all paths
        """Return triggers, unless nearly every slice remembers something."""
        return None if memory.by_exception else _SOME

    def union(self, parts: Iterable[Found]) -> Found:
        """Return triggers if every part has some."""
        return None if None in parts else _SOME

    def best(self, parts: Iterable[Found]) -> Found:
        """Return triggers if a part has some."""
        return _SOME if _SOME in parts else None


_SOME: Final[Found] = frozenset()
_SOME_EVENT: Final = _SomeEvent()
