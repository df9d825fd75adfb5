"""The predicates of conditions at one event: their truths, the values looked up, and notes on types."""

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias, assert_never

from engine.evaluation.facts.lookups import Lookup, Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.shown import Shown, shown
from engine.evaluation.facts.values import equal, key_of, split_name, value_of
from engine.language import condition as language
from engine.language.condition import FactArg, LeafValue
from engine.language.diagnostics import json_type, quoted

Predicate: TypeAlias = language.Leaf | language.Ref | language.InRelation

_TYPED_LISTS: Final = frozenset({"in", "nin", "between"})
"""The operators whose constant is a list, but whose fact is of the type of its elements."""


class Predicates:
    """The predicates at one event. `patterns` has begun with it."""

    def __init__(
        self, fields: Mapping[str, Any], sent: Mapping[str, Any], lookups: Lookups, patterns: PatternWork
    ) -> None:
        self._fields, self._sent = fields, sent
        self._lookups, self._patterns = lookups, patterns
        self._lookup_of: dict[str, Lookup] = {}
        """Each is kept here, because what it has cached serves all predicates about its fact."""
        self._shown: dict[str, Shown] = {}
        self._replaced: Mapping[str, Any] = {}

    def replaced(self, values: Mapping[str, Any]) -> "Predicates":
        """Return the predicates at the same event with other values of some names; None for missing."""
        others = Predicates(self._fields, self._sent, self._lookups, self._patterns)
        others._replaced = values
        return others

    def value(self, name: str) -> Any:
        """Return the value of a name, or None if it is missing."""
        if name in self._replaced:
            return self._replaced[name]
        return value_of(split_name(name), self._fields, self._sent)

    def shown(self, names: Collection[str]) -> dict[str, Shown]:
        """Return the values of those names that have one, as they are shown."""
        for name in names:
            if name not in self._shown and (value := self.value(name)) is not None:
                self._shown[name] = shown(value)
        return {name: self._shown[name] for name in names if name in self._shown}

    # -- truths ---------------------------------------------------------------------------------------------

    def truth(self, predicate: Predicate) -> bool:
        """Return whether a predicate is true."""
        match predicate:
            case language.Leaf(fact):
                value = self.value(fact)
                return value is not None and self._compared(predicate, value)
            case language.Ref(fact, _, reference):
                value, other = self.value(fact), self.value(reference)
                return value is not None and other is not None and self._related(predicate, value, other)
            case language.InRelation(relation, args):
                values = [self.value(arg.fact) if isinstance(arg, FactArg) else arg for arg in args]
                return self._lookups.relations(self._sent).holds(relation, *values)
            case _:
                assert_never(predicate)

    def _compared(self, leaf: language.Leaf, value: Any) -> bool:
        constant = leaf.value
        match leaf.op:
            case "eq" | "neq":
                other = list(constant) if isinstance(constant, tuple) else constant
                return equal(value, other) is (leaf.op == "eq")
            case "in" | "nin" if isinstance(constant, tuple):
                # The constants are all strings or all numbers, and only a boolean equals one of another type.
                return (type(value) is not bool and value in constant) is (leaf.op == "in")
            case "contains":
                return self._lookup(leaf.fact).contains(value, constant)
            case "matches" if isinstance(constant, str):
                return type(value) is str and self._patterns.finder(leaf.fact, constant)(value)
            case "between" if isinstance(constant, tuple):
                low, high = constant
                return json_type(value) == json_type(low) and low <= value <= high
            case _:
                raise AssertionError(leaf)

    def _related(self, ref: language.Ref, value: Any, other: Any) -> bool:
        by_fact, by_reference = self._lookup(ref.fact), self._lookup(ref.reference)
        if ref.op in {"eq", "neq"}:
            nested = type(value) is list or type(value) is dict
            same = by_fact.equals(value, other, by_reference) if nested else equal(value, other)
            return same is (ref.op == "eq")
        return type(other) is list and by_reference.holds(other, value, by_fact) is (ref.op == "in")

    def _lookup(self, fact: str) -> Lookup:
        lookup = self._lookup_of.get(fact)
        if lookup is None:
            lookup = self._lookup_of[fact] = self._lookups.of(fact)
        return lookup

    # -- notes --------------------------------------------------------------------------------------------

    def names(self, predicate: Predicate) -> list[str]:
        """Return the names that a predicate looks up."""
        match predicate:
            case language.Leaf(fact):
                return [fact]
            case language.Ref(fact, _, reference):
                return [fact, reference]
            case language.InRelation(_, args):
                return [arg.fact for arg in args if isinstance(arg, FactArg)]
            case _:
                assert_never(predicate)

    def notes(self, predicate: Predicate) -> list[str]:
        """Say where the values are of types that a predicate never compares."""
        match predicate:
            case language.Leaf(fact):
                value = self.value(fact)
                return [] if value is None else _mismatch(predicate, value)
            case language.Ref(fact, op, reference):
                value, other = self.value(fact), self.value(reference)
                if value is None or other is None:
                    return []
                if op in {"in", "nin"}:
                    return [] if type(other) is list else [f"{_is(reference, other)}, not an array"]
                if json_type(value) == json_type(other):
                    return []
                return [f"{_is(fact, value)}, compared with {quoted(reference)}, {_said(other)}"]
            case language.InRelation(relation, _):
                found = {name: self.value(name) for name in self.names(predicate)}
                notes = [
                    f"{_is(name, value)}, which no relation holds"
                    for name, value in found.items()
                    if value is not None and key_of(value) is None
                ]
                if relation not in self._sent:
                    notes.append(f"the relation {quoted(relation)} is neither stored nor sent")
                return notes
            case _:
                assert_never(predicate)


def _mismatch(leaf: language.Leaf, value: Any) -> list[str]:
    constant, kind = leaf.value, json_type(value)
    match leaf.op:
        case "contains" if kind not in {"a string", "an array"}:
            return [f"{_is(leaf.fact, value)}, neither a string nor an array"]
        case "contains" if kind == "an array":
            return []
        case "matches" if kind != "a string":
            return [f"{_is(leaf.fact, value)}, not a string"]
        case op if op in _TYPED_LISTS and isinstance(constant, tuple):
            # They are of one type.
            if {*map(json_type, constant[:1])} <= {kind}:
                return []
            return [f"{_is(leaf.fact, value)}, compared with {_plural(constant)}"]
        case _ if kind != json_type(constant):
            return [f"{_is(leaf.fact, value)}, compared with {_said(constant)}"]
        case _:
            return []


def _is(name: str, value: Any) -> str:
    return f"{quoted(name)} is {_said(value)}"


def _said(value: Any) -> str:
    """Describe a value by its type and, if it is a scalar, by itself."""
    match value:
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {_cut(str(value))}"
        case str():
            # As `quoted`, which cuts and escapes, but in the quotes of JSON.
            return f'the string "{quoted(value)[1:-1]}"'
        case tuple() if value:
            return f"an array of {_plural(value)}"
        case _:
            return json_type(value)


_NUMBER_CHARS_MAX: Final = 60


def _cut(digits: str) -> str:
    return digits if len(digits) <= _NUMBER_CHARS_MAX else f"{digits[:_NUMBER_CHARS_MAX]}…"


def _plural(elements: tuple[LeafValue, ...] | list[Any]) -> str:
    # They are of one type.
    return " and ".join([json_type(element).split(" ")[1] + "s" for element in elements[:1]])
