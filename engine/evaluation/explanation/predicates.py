"""The predicates of conditions at one event: their truths, the values looked up, and notes on types."""

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias, assert_never

from engine.evaluation.facts.lookups import Lookup
from engine.evaluation.facts.shown import Shown, shown
from engine.evaluation.facts.values import key_of, split_name, value_of
from engine.evaluation.kernel.code.node_code import PredicateCode, predicate_code
from engine.evaluation.kernel.needs import Needs
from engine.language import condition as language
from engine.language.condition import FactArg, LeafValue
from engine.language.diagnostics import json_type, quoted

Predicate: TypeAlias = language.Leaf | language.Ref | language.InRelation

_TYPED_LISTS: Final = frozenset({"in", "nin", "between"})
"""The operators whose constant is a list, but whose fact is of the type of its elements."""


class Predicates:
    """The predicates of a detector's rules at one event, with which its patterns have begun."""

    def __init__(self, fields: Mapping[str, Any], sent: Mapping[str, Any], needs: Needs) -> None:
        self._fields, self._sent, self._needs = fields, sent, needs
        self._codes: dict[int, PredicateCode] = {}
        self._lookup_of: dict[str, Lookup] = {}
        """Each is kept here, because what it has cached serves all predicates about its fact."""
        self._shown: dict[str, Shown] = {}
        self._replaced: Mapping[str, Any] = {}

    def replaced(self, values: Mapping[str, Any]) -> "Predicates":
        """Return the predicates at the same event with other values of some names; None for missing."""
        others = Predicates(self._fields, self._sent, self._needs)
        others._replaced, others._codes = values, self._codes
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

    def truth(self, predicate: Predicate) -> bool:
        """Return whether a predicate is true."""
        code = self._codes.get(id(predicate))
        if code is None:
            needs, relations = self._needs, self._needs.lookups.relations(self._sent)
            code = predicate_code(predicate, needs.patterns.finder, self._lookup, relations)
            # Equal predicates may be large, so their identity is compared. They stay as long as their rules.
            self._codes[id(predicate)] = code
        values = (*map(self.value, code.facts), *code.constants)
        return code.truth(values, self._fields, self._sent)

    def _lookup(self, fact: str) -> Lookup:
        lookup = self._lookup_of.get(fact)
        if lookup is None:
            lookup = self._lookup_of[fact] = self._needs.lookups.of(fact)
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
