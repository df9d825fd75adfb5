"""The code of predicates: what one event decides by itself."""

from typing import Final, Protocol
from weakref import WeakValueDictionary

from engine.evaluation.facts.lookups import WALKED_MAX
from engine.evaluation.facts.relations import networks_of
from engine.evaluation.facts.values import key_of
from engine.evaluation.operators.interface import Names
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, LeafValue
from engine.language.operators import LARGEST
from engine.language.validation.networks import network_of


class Facts(Names, Protocol):
    """Gives the names by which the code of predicates reads an event."""

    def number(self, name: str) -> str:
        """Return the expression for a fact as a number: NaN if it is none, or beyond the doubles."""

    def exact(self, name: str) -> str:
        """Return the same, where integers of any size are numbers."""

    def lookup(self, name: str) -> str:
        """Return the variable of the look-up of a fact, which bounds the work on large values."""

    def matches(self, name: str, pattern: str) -> str:
        """Return the expression for whether a pattern is found in a fact that is a text."""

    def address(self, name: str) -> str:
        """Return the expression for the number of the IP address in a fact: None if it is none."""

    def elements(self, node: language.Some) -> str:
        """Return the expression for whether some element of an array meets a condition."""

    def relations(self) -> str:
        """Return the variable of the relations that an event has."""

    def arguments(self, args: tuple[FactArg | language.Scalar, ...]) -> str:
        """Return the variable of the function that gives the arguments of a relation."""


def predicate(node: Condition, facts: Facts) -> str:
    """Return the expression for the truth of a predicate."""
    match node:
        case language.InNetwork(fact, networks):
            return _lies_in(fact, networks, facts)
        case language.Some():
            return facts.elements(node)
        case language.Ref(fact, "eq" | "in" as op, reference) if fact == reference:
            return f"({facts.fact(fact)} is not None)" if op == "eq" else "False"
        case language.Leaf(fact, "eq" | "neq" | "in" | "nin" as op, value):
            test = _equals(fact, value, facts) if op in ("eq", "neq") else _among(fact, value, facts)
            return f"({facts.fact(fact)} is not None and not {test})" if op in ("neq", "nin") else test
        case language.Leaf(fact, "contains", value):
            return _contains(fact, value, facts)
        case language.Leaf(fact, "matches", str() as pattern):
            found = facts.fact(fact)
            return f"(type({found}) is str and {facts.matches(fact, pattern)})"
        case language.Leaf(fact, "between", (low, high)):
            return _between(fact, low, high, facts)
        case language.Ref(fact, op, reference):
            return _compares(fact, op, reference, facts)
        case language.InRelation(relation, args):
            return _related(relation, args, facts)
        case _:
            raise AssertionError(node)


def open_range(node: Condition) -> language.Leaf | None:
    """Return the range of `x > 5` or `x < 5`: one without its end. Return None for other conditions."""
    match node:
        case language.All((language.Leaf(fact, "between", ends) as range_, language.Leaf(same, "neq", end))):
            # True is not 1.
            if fact == same and not isinstance(end, bool | str | tuple) and abs(end) != LARGEST:
                return range_ if ends in ((end, LARGEST), (-LARGEST, end)) else None
    return None


def beyond(range_: language.Leaf, facts: Facts) -> str:
    """Return the test for an open range."""
    assert isinstance(range_.value, tuple), range_
    low, high = range_.value
    if high == LARGEST:
        return f"({facts.constant(low)} < {facts.number(range_.fact)})"
    return f"({facts.number(range_.fact)} < {facts.constant(high)})"


def _equals(fact: str, value: LeafValue, facts: Facts) -> str:
    found = facts.fact(fact)
    if isinstance(value, bool):
        return f"({found} is {facts.constant(value)})"
    if isinstance(value, tuple):
        return f"equal({found}, {facts.constant(list(value))})"
    constant = facts.constant(value)
    # In Python, True equals 1 and False equals 0. No other JSON values of different types are equal.
    if value in (0, 1):
        return f"({found} == {constant} and {found} is not {value == 1})"
    return f"({found} == {constant})"


def _among(fact: str, values: LeafValue, facts: Facts) -> str:
    assert isinstance(values, tuple), values
    found = facts.fact(fact)
    if not values:
        return "False"
    constant = facts.constant(set_of(values))
    if isinstance(values[0], str):
        return f"(type({found}) is str and {found} in {constant})"
    is_number = f"(type({found}) is int or type({found}) is float)"
    # A set of many numbers that a caller has computed takes time quadratic in their number.
    sought = f"key_of({found})" if len(values) > NUMBERS_MAX else found
    return f"({is_number} and {sought} in {constant})"


def _contains(fact: str, value: LeafValue, facts: Facts) -> str:
    found, lookup, constant = facts.fact(fact), facts.lookup(fact), facts.constant(value)
    if not isinstance(value, str):
        return f"(type({found}) is list and {lookup}.holds({found}, {constant}))"
    searched = (
        f"{constant} in {found} if len({found}) <= {WALKED_MAX} else {lookup}.contains({found}, {constant})"
    )
    return f"((type({found}) is str or type({found}) is list) and ({searched}))"


def _between(fact: str, low: language.Scalar, high: language.Scalar, facts: Facts) -> str:
    if isinstance(low, str):
        found = facts.fact(fact)
        return f"(type({found}) is str and {facts.constant(low)} <= {found} <= {facts.constant(high)})"
    if high == LARGEST:
        return f"({facts.constant(low)} <= {facts.number(fact)})"
    if low == -LARGEST:
        return f"({facts.number(fact)} <= {facts.constant(high)})"
    return f"({facts.constant(low)} <= {facts.exact(fact)} <= {facts.constant(high)})"


def _compares(fact: str, op: str, reference: str, facts: Facts) -> str:
    one, other = facts.fact(fact), facts.fact(reference)
    own, theirs = facts.lookup(fact), facts.lookup(reference)
    if op in ("in", "nin"):
        fits, test = f"type({other}) is list", f"{theirs}.holds({other}, {one}, {own})"
    else:
        fits = f"{other} is not None"
        nested = f"type({one}) is list or type({one}) is dict"
        test = f"({own}.equals({one}, {other}, {theirs}) if {nested} else equal({one}, {other}))"
    negation = "not " if op in ("neq", "nin") else ""
    return f"({one} is not None and {fits} and {negation}{test})"


def _related(relation: str, args: tuple[FactArg | language.Scalar, ...], facts: Facts) -> str:
    relations, name = facts.relations(), facts.constant(relation)
    if len(args) > ARGUMENTS_NAMED_MAX:
        return f"{relations}.holds({name}, *{facts.arguments(args)}(fields, vars))"
    given = [facts.fact(one.fact) if isinstance(one, FactArg) else facts.constant(one) for one in args]
    return f"{relations}.holds({', '.join([name, *given])})"


def _lies_in(fact: str, networks: tuple[str, ...] | language.NetworksOf, facts: Facts) -> str:
    address = facts.address(fact)
    variable = address.strip("()").split()[0]
    if isinstance(networks, language.NetworksOf):
        test = f"{facts.relations()}.lies_in({facts.constant(networks.relation)}, {variable})"
    elif len(networks) == 1:
        network = network_of(networks[0])
        assert network is not None, networks
        test = f"{variable} >> {facts.constant(network.shift)} == {facts.constant(network.key)}"
    else:
        test = f"{facts.constant(networks_of(networks).have)}({variable})"
    return f"({address} is not None and {test})"


ARGUMENTS_NAMED_MAX: Final = 16
"""The code names up to this many arguments: Python takes seconds to compile thousands of names."""

NUMBERS_MAX: Final = 64
"""Sets of more numbers have the keys of these."""

_SETS: Final[WeakValueDictionary[tuple[object, ...], frozenset[object]]] = WeakValueDictionary()


def set_of(values: tuple[language.Scalar, ...]) -> frozenset[object]:
    """Return the set of these strings or numbers, or of the keys of many numbers. Equal lists share it."""
    found = _SETS.get(values)
    if found is None:
        are_keys = len(values) > NUMBERS_MAX and not isinstance(values[0], str)
        found = _SETS[values] = frozenset(map(key_of, values) if are_keys else values)
    return found
