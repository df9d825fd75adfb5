"""Finds literals that contradict each other: an `and` that is never true, an `or` that nearly always is."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from engine.language.condition import All, Leaf
from engine.language.condition import Any as AnyOf
from engine.language.diagnostics import json_type, quoted
from engine.language.text.printer import comparison_text
from engine.language.text.printer import format as text_of

_PREDICATES_MAX: Final = 32
"""The most predicates of one fact that are compared with each other."""
_ELEMENTS_MAX: Final = 100
"""Longer lists are not looked into."""


class _Predicate(NamedTuple):
    """What one predicate asks of a fact; `x > 5` is two leaves."""

    text: str
    leaves: tuple[Leaf, ...]


class _Values:
    """The values that a fact can have if all predicates so far are true."""

    def __init__(self) -> None:
        self.predicates: list[str] = []
        self._listed: set[Any] | None = None
        self._excluded: set[Any] = set()
        self._ranges: list[tuple[Any, Any]] = []

    def narrow(self, predicate: _Predicate) -> None:
        """Take one more predicate."""
        self.predicates.append(predicate.text)
        for op, value in ((leaf.op, leaf.value) for leaf in predicate.leaves):
            listed = {_typed(each) for each in (value if isinstance(value, tuple) else (value,))}
            match op:
                case "eq" | "in":
                    self._listed = listed if self._listed is None else self._listed & listed
                case "neq" | "nin":
                    self._excluded |= listed
                case "between":
                    low, high = value  # type: ignore[misc, str-unpack]  # two, as validation has checked
                    self._ranges.append((low, high))

    def is_empty(self) -> bool:
        """Return whether no value is left."""
        if self._listed is not None:
            return not any(
                each not in self._excluded and all(_is_within(each, one) for one in self._ranges)
                for each in self._listed
            )
        if not self._ranges:
            return False
        if len({json_type(low) for low, _ in self._ranges}) > 1:
            return True
        low, high = max(low for low, _ in self._ranges), min(high for _, high in self._ranges)
        return bool(low > high) or (low == high and _typed(low) in self._excluded)


def contradictions(node: All, covered: set[int]) -> Iterator[str]:
    """Yield the contradictions between the members of an `and`. Adds the `and`s inside it to `covered`."""
    values: dict[str, _Values] = {}
    for predicate in _predicates(node, covered):
        fact = predicate.leaves[0].fact
        known = values.setdefault(fact, _Values())
        if len(known.predicates) >= _PREDICATES_MAX:
            continue
        known.narrow(predicate)
        if known.is_empty():
            if len(known.predicates) > 1:
                others = " and ".join(quoted(text) for text in known.predicates[-2:-1])
                rest = "" if len(known.predicates) == 2 else " and the other conditions on it"  # noqa: PLR2004
                yield (
                    f"{quoted(predicate.text)} is never true together with {others}{rest}: {quoted(fact)} "
                    "has one value at an event; alternatives are joined by `or`"
                )
            return


def excluded_alternatives(node: AnyOf, covered: set[int]) -> Iterator[str]:
    """Yield `x != 1 or x != 2`, which is true wherever x is there. Adds inner `or`s to `covered`."""
    before: dict[str, Leaf] = {}
    pending = [*reversed(node.members)]
    while pending:
        member = pending.pop()
        match member:
            case AnyOf(members):
                covered.add(id(member))
                pending += reversed(members)
            case Leaf(fact, "neq", value) if not isinstance(value, tuple):
                first = before.setdefault(fact, member)
                if _typed(first.value) != _typed(value):
                    both = f"{quoted(text_of(first))} or {quoted(text_of(member))}"
                    yield (
                        f"{both} is true at every event that has {quoted(fact)}, since no value equals both; "
                        "to exclude both, join them by `and`, or use `not in`"
                    )
                    return
            case _:
                pass


def _predicates(node: All, covered: set[int]) -> Iterator[_Predicate]:
    """Yield what an `and` asks of facts by literals, through the `and`s inside it, in document order."""
    pending: list[Any] = [node]
    while pending:
        member = pending.pop()
        match member:
            case All(members):
                if member is not node:
                    covered.add(id(member))
                comparison = comparison_text(members)
                if comparison:
                    yield _Predicate(comparison, members)  # type: ignore[arg-type]  # two leaves
                else:
                    pending += reversed(members)
            case Leaf(_, "eq" | "neq", value) if not isinstance(value, tuple):
                yield _Predicate(text_of(member), (member,))
            case Leaf(_, "in" | "nin" | "between", tuple() as value) if len(value) <= _ELEMENTS_MAX:
                yield _Predicate(text_of(member), (member,))
            case _:
                pass


def _typed(value: Any) -> tuple[str, Any]:
    """Return a scalar so that values of different types differ."""
    return json_type(value), value


def _is_within(typed: tuple[str, Any], limits: tuple[Any, Any]) -> bool:
    kind, value = typed
    low, high = limits
    return kind == json_type(low) and low <= value <= high
