"""The code of predicates, which depend only on the event, or on an element of an array.

The code of `some` is a function that iterates over an array, and looks names up in each element.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.facts.look_up import ELEMENT, ELEMENTS_MAX, element_fact, fields_of_element, split_name
from engine.evaluation.facts.lookups import NARROWED_MIN, WALKED_MAX, Lookup
from engine.evaluation.facts.relations import networks_of
from engine.evaluation.facts.values import key_of
from engine.evaluation.generated import function, indented
from engine.evaluation.kernel.code.event_code import EventCode, LookupOf, Narrower, Patterns
from engine.evaluation.kernel.code.uses import Uses, open_range
from engine.evaluation.operators.compare import Names, comparison
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Births
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, LeafValue
from engine.language.forms.table import facts_of
from engine.language.operators import LARGEST
from engine.language.validation.networks import network_of
from engine.patterns.text_tests import literal_of

ARGUMENTS_NAMED_MAX: Final = 16
"""Code passes up to this many arguments by name: Python takes seconds to compile thousands of names."""

NUMBERS_MAX: Final = 64
"""Sets of more numbers contain keys instead of numbers."""

_SETS: Final[WeakValueDictionary[tuple[object, ...], frozenset[object]]] = WeakValueDictionary()


def set_of(values: tuple[language.Scalar, ...]) -> frozenset[object]:
    """Return the set of these strings or numbers, or of the keys of many numbers. Equal lists share it."""
    found = _SETS.get(values)
    if found is None:
        are_keys = len(values) > NUMBERS_MAX and not isinstance(values[0], str)
        found = _SETS[values] = frozenset(map(key_of, values) if are_keys else values)
    return found


def expensive_last(members: Sequence[Condition]) -> list[Condition]:
    """Return members with relations, elements and patterns last, in this order: others often decide first."""
    return sorted(members, key=_expense)


def _expense(node: Condition) -> int:
    while isinstance(node, language.Not):
        node = node.inner
    match node:
        case language.All(members) | language.Any(members):
            return max(map(_expense, members), default=0)
        case language.InRelation():
            return 1
        case language.Some():
            return 2
        case language.Leaf(_, "matches"):
            return 3
        case _:
            return 0


class PresentCode(EventCode):
    """The code of conditions that consist of predicates."""

    def truth(self, node: Condition, births: Births, path: Path) -> str:
        """Return the expression for the truth of a condition under a path, for a rule with these births."""
        match node:
            case language.All() if (range_ := open_range(node)) is not None:
                return self.looked_up(facts_of(range_), self._beyond(range_))
            case language.All(members) | language.Any(members):
                word = " and " if isinstance(node, language.All) else " or "
                truths = [self.truth(member, births, path) for member in expensive_last(members)]
                return f"({word.join(truths)})"
            case language.Not(inner):
                return f"(not {self.truth(inner, births, path)})"
            case language.Compare():
                return self._comparison(node, births, path)
            case _:
                return self._predicate(node)

    def _comparison(self, node: language.Compare, births: Births, path: Path) -> str:  # noqa: ARG002 -- it does not look back
        return self.looked_up(facts_of(node), comparison(node, Names(self.constant, lambda _: self)))

    def _predicate(self, node: Condition) -> str:
        return self.looked_up(facts_of(node), self.predicate(node))

    def predicate(self, node: Condition) -> str:
        """Return the expression for the truth of a predicate."""
        match node:
            case language.InNetwork(fact, networks):
                return self._lies_in(fact, networks)
            case language.Some():
                return self.elements(node)
            case language.Ref(fact, "eq" | "in" as op, reference) if fact == reference:
                return f"({self.fact(fact)} is not None)" if op == "eq" else "False"
            case language.Leaf(fact, "eq" | "neq" | "in" | "nin" as op, value):
                test = self._equals(fact, value) if op in ("eq", "neq") else self._among(fact, value)
                return f"({self.fact(fact)} is not None and not {test})" if op in ("neq", "nin") else test
            case language.Leaf(fact, "contains", value):
                return self._contains(fact, value)
            case language.Leaf(fact, "matches", str() as pattern):
                found = self.fact(fact)
                return f"(type({found}) is str and {self.matches(fact, pattern)})"
            case language.Leaf(fact, "between", (low, high)):
                return self._between(fact, low, high)
            case language.Ref(fact, op, reference):
                return self._compares(fact, op, reference)
            case language.InRelation(relation, args):
                return self._related(relation, args)
            case _:
                raise AssertionError(node)

    def _beyond(self, range_: language.Leaf) -> str:
        """Return the test for an open range."""
        assert isinstance(range_.value, tuple), range_
        low, high = range_.value
        if high == LARGEST:
            return f"({self.constant(low)} < {self.number(range_.fact)})"
        return f"({self.number(range_.fact)} < {self.constant(high)})"

    def _equals(self, fact: str, value: LeafValue) -> str:
        found = self.fact(fact)
        if isinstance(value, bool):
            return f"({found} is {self.constant(value)})"
        if isinstance(value, tuple):
            return f"equal({found}, {self.constant(list(value))})"
        constant = self.constant(value)
        # In Python, True equals 1 and False equals 0. No other JSON values of different types are equal.
        if value in (0, 1):
            return f"({found} == {constant} and {found} is not {value == 1})"
        return f"({found} == {constant})"

    def _among(self, fact: str, values: LeafValue) -> str:
        assert isinstance(values, tuple), values
        found = self.fact(fact)
        if not values:
            return "False"
        constant = self.constant(set_of(values))
        if isinstance(values[0], str):
            return f"(type({found}) is str and {found} in {constant})"
        is_number = f"(type({found}) is int or type({found}) is float)"
        # Searching a set of many numbers chosen by a caller can take time quadratic in their number.
        sought = f"key_of({found})" if len(values) > NUMBERS_MAX else found
        return f"({is_number} and {sought} in {constant})"

    def _contains(self, fact: str, value: LeafValue) -> str:
        found, lookup, constant = self.fact(fact), self.lookup(fact), self.constant(value)
        if not isinstance(value, str):
            return f"(type({found}) is list and {lookup}.holds({found}, {constant}))"
        little = f"{constant} in {found} if len({found}) <= {WALKED_MAX}"
        searched = f"{little} else {lookup}.contains({found}, {constant})"
        return f"((type({found}) is str or type({found}) is list) and ({searched}))"

    def _between(self, fact: str, low: language.Scalar, high: language.Scalar) -> str:
        if isinstance(low, str):
            found = self.fact(fact)
            return f"(type({found}) is str and {self.constant(low)} <= {found} <= {self.constant(high)})"
        assert not isinstance(high, str), "both ends have one type"
        if high == LARGEST:
            return f"({self.constant(low)} <= {self.number(fact)})"
        if low == -LARGEST:
            return f"({self.number(fact)} <= {self.constant(high)})"
        return f"({self.constant(low)} <= {self.exact(fact, low, high)} <= {self.constant(high)})"

    def _compares(self, fact: str, op: str, reference: str) -> str:
        one, other = self.fact(fact), self.fact(reference)
        own, theirs = self.lookup(fact), self.lookup(reference)
        if op in ("in", "nin"):
            fits, test = f"type({other}) is list", f"{theirs}.holds({other}, {one}, {own})"
        else:
            fits = f"{other} is not None"
            nested = f"type({one}) is list or type({one}) is dict"
            test = f"({own}.equals({one}, {other}, {theirs}) if {nested} else equal({one}, {other}))"
        negation = "not " if op in ("neq", "nin") else ""
        return f"({one} is not None and {fits} and {negation}{test})"

    def _related(self, relation: str, args: tuple[FactArg | language.Scalar, ...]) -> str:
        relations, name = self.relations(), self.constant(relation)
        if len(args) > ARGUMENTS_NAMED_MAX:
            return f"{relations}.holds({name}, *{self.arguments(args)}(fields, vars))"
        given = [self.fact(one.fact) if isinstance(one, FactArg) else self.constant(one) for one in args]
        # A missing fact is noticed here, because a call takes ten times as long.
        found = [f"{self.fact(one.fact)} is not None and " for one in args if isinstance(one, FactArg)]
        return f"({''.join(found)}{relations}.holds({', '.join([name, *given])}))"

    def _lies_in(self, fact: str, networks: tuple[str, ...] | language.NetworksOf) -> str:
        address = self.address(fact)
        variable = address.strip("()").split()[0]
        if isinstance(networks, language.NetworksOf):
            test = f"{self.relations()}.lies_in({self.constant(networks.relation)}, {variable})"
        elif len(networks) == 1:
            network = network_of(networks[0])
            assert network is not None, networks
            test = f"{variable} >> {self.constant(network.shift)} == {self.constant(network.key)}"
        else:
            test = f"{self.constant(networks_of(networks).have)}({variable})"
        return f"({address} is not None and {test})"

    def elements(self, node: language.Some) -> str:
        """Return the expression for whether an element of an array meets a condition."""
        code = _ElementCode(node, self._patterns, self._lookup_of)
        array = self.fact(node.fact)
        if node.fact == language.STRINGS:
            self.lookup(node.fact)
        test = self.constant(code.test())
        relations = self.relations() if code.asks_relations else "None"
        self.asks_vars |= code.asks_vars
        base = "base" if code.asks_time else "0"
        return f"(type({array}) is list and {test}({array}, vars, {relations}, {base}))"


_SOME: Final = """\
 def some(elements, vars, relations, base):
  if len(elements) > {most}: return False
  for element in {elements}:
   {lookups}
   if {truth}: return True
  return False
 return some
"""

_WITHOUT_TEXTS: Final = ""
"""The name, in the elements of a fact, of its look-up without joint search of literals."""


class _ElementPatterns:
    """The patterns on the facts of the elements of an array."""

    def __init__(self, patterns: Patterns, array: str) -> None:
        self._patterns, self._array = patterns, array

    def finder(self, fact: str, pattern: str) -> object:
        """Return a function that tests whether a pattern matches a text of the fact."""
        return self._patterns.finder(element_fact(self._array, fact), pattern)

    def narrower(self, fact: str, pattern: str, look: Callable[[Any], Any]) -> Narrower:
        """Return a function that returns the elements of an array that a pattern may match."""
        return self._patterns.narrower(element_fact(self._array, fact), pattern, look)


def _fewest(narrowers: Sequence[Narrower], array: list[Any]) -> Sequence[Any]:
    """Return the elements for which all of some conditions may be true, and possibly others."""
    return min([narrower(array) for narrower in narrowers], key=len)


def _together(narrowers: Sequence[Narrower], array: list[Any]) -> Sequence[Any]:
    """Return the elements for which one of some conditions may be true."""
    found: list[Any] = []
    for narrower in narrowers:
        if (of_one := narrower(array)) is array:
            return array
        found += of_one
    return found


class _ElementCode(PresentCode):
    """The code of the condition inside a `some`."""

    def __init__(self, node: language.Some, patterns: Patterns, lookup_of: LookupOf) -> None:
        array = node.fact
        super().__init__(
            Uses([(node.inner, Births())]),
            _ElementPatterns(patterns, array),
            # Literals are searched for one by one, because an event has several values to search.
            lambda fact: lookup_of(element_fact(element_fact(array, fact), _WITHOUT_TEXTS)),
        )
        self._inner = node.inner
        self._of_elements: Callable[..., Lookup] = lambda *names: lookup_of(
            reduce(element_fact, names, array)
        )

    def test(self) -> Any:
        """Return the function."""
        truth = self.truth(self._inner, Births(), ())
        elements = "elements"
        if (narrower := self._narrower(self._inner)) is not None:
            elements = f"elements if len(elements) <= {NARROWED_MIN} else {self.constant(narrower)}(elements)"
        lookups = indented(self.lookups(), 3)
        source = _SOME.format(most=ELEMENTS_MAX, elements=elements, lookups=lookups, truth=truth)
        return function(source, self.given())

    def _narrower(self, node: Condition) -> Narrower | None:
        """Return a function that returns the elements for which a condition may be true; None if all may."""
        match node:
            case language.Leaf(fact, op, value) if not fact.startswith("$"):
                return self._narrower_of_leaf(fact, op, value)
            case language.All(members) | language.Any(members):
                found = [each for member in members if (each := self._narrower(member)) is not None]
                if isinstance(node, language.All):
                    return partial(_fewest, found) if found else None
                return partial(_together, found) if len(found) == len(members) else None
            case _:
                return None

    def _narrower_of_leaf(self, fact: str, op: str, value: LeafValue) -> Narrower | None:
        inside = split_name(fact).look

        def look(element: Any) -> Any:
            return inside(fields_of_element(element))

        match op, value:
            case "matches", str() if literal_of(value) is None:
                return self._patterns.narrower(fact, value, look)
            case "contains", str():
                return self._of_elements(fact, _WITHOUT_TEXTS, op).containing(
                    value, self._of_elements(fact), look
                )
            case ("eq", str() | int() | float()) | ("in", tuple()):
                values = value if isinstance(value, tuple) else (value,)
                if len(values) > NUMBERS_MAX:
                    return None
                return self._of_elements(fact, _WITHOUT_TEXTS, "eq").equal(tuple(map(key_of, values)), look)
            case _:
                return None

    def lookups(self) -> Any:
        """Yield the statements that come first."""
        self.asks_vars |= any(name.startswith("$") for name in self._facts)
        for line in super().lookups():
            if not line.startswith(("vars =", "relations =")):
                yield line

    def _fact_lookup(self, number: int, name: str) -> str:
        if name.startswith("$"):
            return super()._fact_lookup(number, name)
        if name == language.STRINGS:
            return f"look{number}(element)"
        inside = f"look{number}(element)" if split_name(name).steps else f"element.get(n{number})"
        return f"{inside} if type(element) is dict else {'element' if name == ELEMENT else None}"
