"""The predicates of conditions at one event: their truths, the values they use, and notes about types."""

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from math import isfinite
from types import SimpleNamespace
from typing import Any, Final, assert_never, cast

import msgspec

from engine.evaluation.explanation.nodes import Future
from engine.evaluation.facts.look_up import ELEMENTS_MAX, split_name, value_of
from engine.evaluation.facts.lookups import Lookup
from engine.evaluation.facts.relations import address
from engine.evaluation.facts.shown import Shown, shown
from engine.evaluation.facts.values import key_of
from engine.evaluation.kernel.code.node_code import PredicateCode, predicate_code, verdict_code
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.operators.compare import motion_of, steps_us
from engine.evaluation.operators.term_interface import Motion
from engine.evaluation.stamps import NUMBER_BITS
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, LeafValue, Predicate, children, walk
from engine.language.diagnostics import cut, json_type, quoted
from engine.language.forms.table import facts_of
from engine.language.terms import Sub

_TYPED_LISTS: Final = frozenset({"in", "nin", "between"})
"""The operators with a list of constants, whose fact has the type of the elements."""


class Predicates:
    """The predicates of a detector's rules at one event, for which its patterns have begun."""

    def __init__(self, fields: Mapping[str, Any], sent: Mapping[str, Any], needs: Needs, now_us: int) -> None:
        self._fields, self._sent, self._needs, self._now_us = fields, sent, needs, now_us
        self._codes: dict[int, PredicateCode] = {}
        self._lookup_of: dict[str, Lookup] = {}
        """Each look-up is kept here, because its cached results serve all predicates about its fact."""
        self._shown: dict[str, Shown] = {}
        self._replaced: Mapping[str, Any] = {}

    def replaced(self, values: Mapping[str, Any]) -> "Predicates":
        """Return the predicates at the same event with other values for some names; None for missing."""
        others = Predicates(self._fields, self._sent, self._needs, self._now_us)
        others._replaced, others._codes = values, self._codes
        return others

    def value(self, name: str) -> Any:
        """Return the value of a name, or None if it is missing."""
        if name in self._replaced:
            return self._replaced[name]
        return value_of(split_name(name), self._fields, self._sent)

    def shown(self, names: Collection[str]) -> dict[str, Shown]:
        """Return the values of those names that have one, as shown."""
        for name in names:
            if name not in self._shown and (value := self.value(name)) is not None:
                self._shown[name] = shown(value)
        return {name: self._shown[name] for name in names if name in self._shown}

    def truth(self, predicate: Predicate | language.Compare) -> bool:
        """Return whether a predicate, or a comparison of terms that do not look back, is true."""
        code = self._codes.get(id(predicate))
        if code is None:
            needs, relations = self._needs, self._needs.lookups.relations(self._sent)
            code = predicate_code(predicate, needs.patterns, self._lookup, relations)
            # Compared by identity, because equal predicates may be large. They live as long as their rules.
            self._codes[id(predicate)] = code
        return self.truth_of(code)

    def truth_of(self, code: PredicateCode) -> bool:
        """Return whether a predicate is true, given its function."""
        values = (*map(self.value, code.facts), *code.constants)
        return code.truth(values, self._fields, self._sent, self._now_us << NUMBER_BITS)

    def computed(self, comparison: language.Compare) -> list[Any]:
        """Return the values of terms that do not look back, without facts and constants."""
        code = verdict_code(comparison)
        values = (*map(self.value, code.facts), *code.constants)
        found = code.found((), self._now_us << NUMBER_BITS, values)
        return [
            value for value in found if value is not None and (type(value) is not float or isfinite(value))
        ]

    def difference(self, comparison: language.Compare) -> float | None:
        """Return the left side minus the right one; None if there is no finite difference."""
        code = verdict_code(language.Compare(Sub((comparison.left, comparison.right)), "eq", 0))
        values = (*map(self.value, code.facts), *code.constants)
        found: float | None = code.found((), self._now_us << NUMBER_BITS, values)[0]
        return found

    def lasting_code(self, predicate: language.Leaf | language.Ref) -> PredicateCode | None:
        """Return the function of a predicate for all events; None if it depends on this event's patterns."""
        bound: list[Any] = []

        def noted(*names: Any) -> Any:
            bound.append(names)
            return "None"

        patterns = SimpleNamespace(finder=noted)
        code = predicate_code(predicate, cast("Any", patterns), noted, cast("Any", None))
        return None if bound else code

    def _lookup(self, fact: str) -> Lookup:
        lookup = self._lookup_of.get(fact)
        if lookup is None:
            lookup = self._lookup_of[fact] = self._needs.lookups.of(fact)
        return lookup

    # -- notes --------------------------------------------------------------------------------------------

    def names(self, predicate: Predicate | language.Compare) -> list[str]:
        """Return the names that a predicate looks up."""
        match predicate:
            case language.Compare():
                return [*dict.fromkeys(facts_of(predicate))]
            case language.Leaf(fact) | language.InNetwork(fact):
                return [fact]
            case language.Anywhere(inner):
                return [*dict.fromkeys(_variables(inner))]
            case language.Some(fact, inner):
                return [fact, *dict.fromkeys(_variables(inner))]
            case language.Ref(fact, _, reference):
                return [fact, reference]
            case language.InRelation(_, args):
                return [arg.fact for arg in args if isinstance(arg, FactArg)]
            case _:
                assert_never(predicate)

    def notes(self, predicate: Predicate) -> list[str]:
        """Return remarks about values of types that a predicate never compares."""
        match predicate:
            case language.Leaf(fact):
                value = self.value(fact)
                return [] if value is None else _mismatch(predicate, value)
            case language.Ref(fact, op, reference):
                value, other = self.value(fact), self.value(reference)
                if value is None or other is None:
                    return self._missing(predicate)
                if op in {"in", "nin"}:
                    return [] if type(other) is list else [f"{_is(reference, other)}, not an array"]
                if json_type(value) == json_type(other):
                    return []
                return [f"{_is(fact, value)}, compared with {quoted(reference)}, {_said(other)}"]
            case language.InNetwork(fact, networks):
                value, notes = self.value(fact), list[str]()
                if value is not None and address(value) is None:
                    notes.append(f"{_is(fact, value)}, which is no IP address")
                if isinstance(networks, language.NetworksOf) and self._is_nowhere(networks.relation):
                    notes.append(_no_relation(networks.relation))
                return notes
            case language.Anywhere():
                return self._about_strings(predicate)
            case language.Some(fact):
                return self._about_elements(predicate, self.value(fact))
            case language.InRelation(relation, _):
                found = {name: self.value(name) for name in self.names(predicate)}
                notes = self._missing(predicate) + [
                    f"{_is(name, value)}, which no relation holds"
                    for name, value in found.items()
                    if value is not None and key_of(value) is None
                ]
                if self._is_nowhere(relation):
                    notes.append(_no_relation(relation))
                return notes
            case _:
                assert_never(predicate)

    def _missing(self, predicate: Predicate) -> list[str]:
        """Return which of several names have no value. A single name is obvious without a remark."""
        names = dict.fromkeys(self.names(predicate))
        return [f"{quoted(name)} is missing" for name in names if len(names) > 1 and self.value(name) is None]

    def _is_nowhere(self, relation: str) -> bool:
        return relation not in self._sent and relation not in self._needs.stored

    def _about_elements(self, some: language.Some, array: Any) -> list[str]:
        """Return which element meets the condition, or why none can."""
        if array is None:
            return []
        if type(array) is not list:
            return [f"{_is(some.fact, array)}, not an array"]
        if len(array) > ELEMENTS_MAX:
            return [f"{quoted(some.fact)} has {len(array)} elements, more than are looked at"]
        if not self.truth(some):
            return [f"none of its {len(array)} elements meets it" if array else "it has no elements"]
        first = next(
            number for number, each in enumerate(array) if self.replaced({some.fact: [each]}).truth(some)
        )
        return [f"`{some.fact}[{first}]` meets it: {_element(array[first])}"]

    def _about_strings(self, anywhere: language.Anywhere) -> list[str]:
        """Return which string meets the condition, or why none can."""
        strings = self.value(language.STRINGS)
        if len(strings) > ELEMENTS_MAX:
            return [f"the event has {len(strings)} strings, more than are looked at"]
        if not self.truth(anywhere):
            return [f"none of the event's {len(strings)} strings meets it"]
        found = next(each for each in strings if self.replaced({language.STRINGS: [each]}).truth(anywhere))
        return [f"the string {_element(found)} meets it"]


def future_of(predicate: Predicate, now_us: int, *, verdict: bool) -> Future:
    """Return the verdict of a predicate, and until when it is known to stay if nothing else happens.

    Of all predicates, only `some` can depend on time: through a comparison about each element.
    """
    inside = walk(predicate.inner) if isinstance(predicate, language.Some) else ()
    compared = [node for node, _ in inside if isinstance(node, language.Compare)]
    if any(motion_of(side) is not Motion.STILL for node in compared for side in (node.left, node.right)):
        return Future(verdict, (), now_us)
    steps = merge(*(each for node in compared for each in steps_us(node, now_us)))
    return Future(verdict, (), next(steps, None))


def _variables(node: Condition) -> Iterator[str]:
    """Yield the names of the variables that a condition about elements uses."""
    yield from (name for name in facts_of(node) if name.startswith("$"))
    for child in children(node):
        yield from _variables(child)


def _element(value: Any) -> str:
    return cut(msgspec.json.encode(shown(value).value).decode(), _ELEMENT_CHARS_MAX)


_ELEMENT_CHARS_MAX: Final = 200


def _no_relation(relation: str) -> str:
    return f"the relation {quoted(relation)} is neither stored nor sent"


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
            # The constants are of one type.
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
            return f"the number {cut(str(value), _NUMBER_CHARS_MAX)}"
        case str():
            # Cut and escaped like `quoted`, but in JSON's quotes.
            return f'the string "{quoted(value)[1:-1]}"'
        case tuple() if value:
            return f"an array of {_plural(value)}"
        case _:
            return json_type(value)


_NUMBER_CHARS_MAX: Final = 60


def _plural(elements: tuple[LeafValue, ...] | list[Any]) -> str:
    # The elements are of one type.
    return " and ".join([json_type(element).split(" ")[1] + "s" for element in elements[:1]])
