"""Facts known of the events that a row is evaluated at, which decide some conditions beforehand."""

from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias

from engine.evaluation.facts.values import key_of
from engine.language import condition as language
from engine.language.condition import Condition


class Value(NamedTuple):
    """The value of a fact, in the form of `key_of`."""

    fact: str
    value: Hashable

    def truth_of(self, leaf: language.Leaf) -> bool | None:
        """Return the truth of a leaf if it is decided, otherwise None."""
        match leaf:
            case language.Leaf(self.fact, "eq", value) if not isinstance(value, tuple):
                return bool(key_of(value) == self.value)
            case language.Leaf(self.fact, "in", value) if isinstance(value, tuple):
                return self.value in map(key_of, value)
            case _:
                return None


class Within(NamedTuple):
    """The range in which a fact is, from `low` to `high`. Both are numbers, or both are texts."""

    fact: str
    low: Any
    high: Any

    def truth_of(self, leaf: language.Leaf) -> bool | None:
        """Return the truth of a leaf if it is decided, otherwise None."""
        match leaf:
            case language.Leaf(self.fact, "between", (low, high)):
                alike = isinstance(low, str) is isinstance(self.low, str)
                return True if alike and low <= self.low and self.high <= high else None
            case _:
                return None


Known: TypeAlias = Value | Within


def truth(node: Condition, known: Known) -> bool | None:
    """Return the truth of a node if what is known decides it, otherwise None."""
    match node:
        case language.Leaf():
            return known.truth_of(node)
        case language.All(members) | language.Any(members):
            decisive = isinstance(node, language.Any)
            truths = [truth(member, known) for member in members]
            if all(found is not None and found is not decisive for found in truths):
                return not decisive
            return decisive if decisive in truths else None
        case language.Not(inner):
            found = truth(inner, known)
            return None if found is None else not found
        case _:
            return None
