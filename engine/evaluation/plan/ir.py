"""Translates conditions into shapes: a shape is a condition without its names and values.

Rules of one shape share their code. A rule with a known shape needs no compilation, and the rules of one
shape are the rows of one loop.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from engine.evaluation.facts.values import key_of, split_name, value_of
from engine.evaluation.memory import Regime
from engine.evaluation.paths import Path, fact_of, step_of
from engine.evaluation.plan.known import Known, truth
from engine.evaluation.plan.requirements import operands_of, operator_of
from engine.evaluation.plan.shapes import (
    FALSE,
    LOOKED_UP,
    NUMERIC,
    TRUE,
    Aggregate,
    Junction,
    Memory,
    Negation,
    Predicate,
    Shape,
    Slice,
    Test,
)
from engine.evaluation.plan.temporal import WINDOW_US_PLAIN, Operator
from engine.evaluation.plan.triggers import Comparison
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, LeafValue, ScaledFact
from engine.language.operators import LARGEST

Memories = Mapping[tuple[Condition, Path], tuple[Any, Regime, bool]]
"""The memory of each temporal node, its regime, and whether it is read through a view; by node and path."""


Finder = Callable[[str, str], object]
"""Gives the test whether a pattern is found in a text, or what stands for it, by fact and pattern."""


class Abstraction:
    """Splits conditions into shapes and numbered facts, paths and constants."""

    def __init__(self, finder: Finder, known: Known | None = None) -> None:
        self._finder = finder
        self._known = known
        self._facts: dict[str, int] = {}
        self._paths: dict[Path, int] = {}
        self.constants: list[Any] = []
        self.sliced: set[int] = set()
        """The numbers of the paths with memories; -1 stands for memories without keys."""
        self.looked_up: set[int] = set()
        """The numbers of the facts whose look-ups the shapes use."""
        self.quantities: Counter[int] = Counter()
        """How many predicates use a fact as a number, by the number of the fact."""
        self.asks_relations = False
        self._memories: Memories = {}
        self._birth = 0
        self._updates = True

    @property
    def facts(self) -> tuple[str, ...]:
        """The names by number."""
        return tuple(self._facts)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of keys by number. Every prefix of a path comes before it."""
        return tuple(self._paths)

    def shape(self, condition: Condition, birth: int, memories: Memories) -> Shape:
        """Return the shape of a condition that updates the memories of its nodes and reads them."""
        self._memories, self._birth, self._updates = memories, birth, True
        return self._shape(condition, ())

    def reader(self, condition: Condition, birth: int, memories: Memories) -> Shape:
        """Return the shape of a condition that reads the memories of its nodes after their updates."""
        self._memories, self._birth, self._updates = memories, birth, False
        return self._shape(condition, ())

    def updater(self, node: Condition, path: Path, birth: int, memories: Memories) -> Shape:
        """Return the shape that updates the memory of one temporal node and reads those of inner nodes."""
        self._memories, self._birth, self._updates = memories, birth, False
        if not path:
            return self._temporal(node, path, updated=True)
        number = self._path(path)
        return Slice(number, self._temporal(node, path, updated=True))

    def _shape(self, node: Condition, path: Path) -> Shape:
        # This comes first, because a node that is folded away must leave no constants behind.
        decided = None if self._known is None else truth(node, self._known)
        if decided is not None:
            return TRUE if decided else FALSE
        match node:
            case language.Leaf():
                return self._leaf(node)
            case language.Ref():
                return self._ref(node)
            case language.InRelation(relation, args):
                return self._in_relation(relation, args)
            case language.All((language.Leaf(fact), _) as both) if (beyond := _beyond(*both)) is not None:
                test, end = beyond
                return self._predicate(test, [self._fact(fact)], [end])
            case language.All(members):
                return _junction("and", [self._shape(member, path) for member in members])
            case language.Any(members):
                return _junction("or", [self._shape(member, path) for member in members])
            case language.Not(inner):
                return Negation(self._shape(inner, path))
            case language.Keyed(inner, _, where):
                longer = (*path, step_of(node, self._birth))
                number = self._path(longer)
                shape = self._shape(inner, longer)
                if where is None or (number in self.sliced and not self._updates):
                    # A table has entered the event only if `where` is true.
                    return Slice(number, shape)
                return Slice(number, shape, self._shape(where, path))
            case _:
                return self._temporal(node, path, updated=self._updates)

    def _temporal(self, node: Condition, path: Path, *, updated: bool) -> "Memory | Aggregate":
        if isinstance(node, language.Aggregate):
            return self._aggregate(node, path, updated=updated)
        return self._memory(node, path, updated=updated)

    def _memory(self, node: Condition, path: Path, *, updated: bool) -> Memory:
        operator = operator_of(node)
        assert isinstance(operator, Operator), node
        memory, regime, viewed = self._memories[node, path]
        operands = operands_of(node) if updated else {}
        shapes = tuple((name, self._shape(operand, path)) for name, operand in operands.items())
        constants = [self._constant(memory)]
        far = False
        if isinstance(node, language.Windowed):
            constants.append(self._constant(node.window_us))
            far = node.window_us > WINDOW_US_PLAIN
        number = self._path(path) if path else -1
        self.sliced.add(number)
        return Memory(operator.name, regime, far, number, tuple(constants), shapes, viewed)

    def _aggregate(self, node: Comparison, path: Path, *, updated: bool) -> Aggregate:
        records, _, viewed = self._memories[node, path]
        constants = [self._constant(records)]
        if node.window_us is not None:
            constants.append(self._constant(node.window_us))
        facts = [] if isinstance(node, language.Count) else [self._fact(node.fact)]
        counted = node.inner if isinstance(node, language.Count) else node.where
        measure: Literal["number", "sum", "mean"] = "mean" if isinstance(node, language.Avg) else "sum"
        op = node.op
        limits: list[object] = [node.value]
        if isinstance(node, language.Count | language.Distinct):
            measure, (op, limits) = "number", _counted(node.op, node.value)
        elif isinstance(node.value, ScaledFact):
            facts.append(self._fact(node.value.fact))
            limits = [float(node.value.factor)]
        numbers = tuple(map(self._constant, limits))
        added = None
        if updated:
            tests: list[Shape] = [Predicate("present", (facts[0],), ())] if facts else []
            if counted is not None:
                tests.append(self._shape(counted, path))
            added = tests[0] if len(tests) == 1 else _junction("and", tests)
        number = self._path(path) if path else -1
        self.sliced.add(number)
        far = node.window_us is not None and node.window_us > WINDOW_US_PLAIN
        return Aggregate(measure, op, number, far, tuple(constants), tuple(facts), numbers, added, viewed)

    # -- predicates -----------------------------------------------------------------------------------------

    def _leaf(self, leaf: language.Leaf) -> Shape:
        value = leaf.value
        fact = self._fact(leaf.fact)
        match leaf.op:
            case "eq" | "neq":
                return self._predicate(_equals(value), [fact], [_compared(value)], negated=leaf.op == "neq")
            case "in" | "nin" if isinstance(value, tuple):
                return self._predicate(_among(value), [fact], [_set_of(value)], negated=leaf.op == "nin")
            case "contains":
                test: Test = "contains text" if isinstance(value, str) else "contains value"
                return self._predicate(test, [fact], [value])
            case "matches" if isinstance(value, str):
                return self._predicate("matches", [fact], [self._finder(leaf.fact, value)])
            case "between" if isinstance(value, tuple):
                within, ends = _within(*value)
                return self._predicate(within, [fact], ends)
            case _:
                raise AssertionError(leaf)

    def _ref(self, ref: language.Ref) -> Shape:
        facts = [self._fact(ref.fact), self._fact(ref.reference)]
        match ref.op:
            case "eq" | "neq":
                return self._predicate("same", facts, [], negated=ref.op == "neq")
            case "in" | "nin":
                return self._predicate("among fact", facts, [], negated=ref.op == "nin")
            case _:
                raise AssertionError(ref)

    def _in_relation(self, relation: str, args: tuple[FactArg | str | float | bool, ...]) -> Shape:
        self.asks_relations = True
        if len(args) > _ARGUMENTS_NAMED_MAX:
            return self._predicate("related by many", [], [relation, _values_of(args)])
        facts = [self._fact(argument.fact) for argument in args if isinstance(argument, FactArg)]
        constants = [argument for argument in args if not isinstance(argument, FactArg)]
        are_facts = tuple([isinstance(argument, FactArg) for argument in args])
        return self._predicate("related", facts, [relation, *constants], arguments=are_facts)

    # -- numbers --------------------------------------------------------------------------------------------

    def _predicate(
        self,
        test: Test,
        facts: list[int],
        constants: Iterable[object],
        *,
        negated: bool = False,
        arguments: tuple[bool, ...] = (),
    ) -> Predicate:
        if test in LOOKED_UP:
            self.looked_up.update(facts)
        if test in NUMERIC:
            self.quantities.update(facts)
        return Predicate(test, tuple(facts), tuple(map(self._constant, constants)), negated, arguments)

    def _fact(self, name: str) -> int:
        return self._facts.setdefault(name, len(self._facts))

    def _path(self, path: Path) -> int:
        if len(path) > 1:
            self._path(path[:-1])
        self._fact(fact_of(path[-1]))
        return self._paths.setdefault(path, len(self._paths))

    def _constant(self, value: Any) -> int:
        self.constants.append(value)
        return len(self.constants) - 1


def _values_of(
    args: tuple[FactArg | str | float | bool, ...],
) -> Callable[[Mapping[str, Any], Mapping[str, Any]], list[Any]]:
    """Return the function that looks up the arguments of a relation in an event's fields and vars."""
    names = [split_name(argument.fact) if isinstance(argument, FactArg) else None for argument in args]

    def values(fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Any]:
        return [
            argument if name is None else value_of(name, fields, sent)
            for argument, name in zip(args, names, strict=True)
        ]

    return values


_ARGUMENTS_NAMED_MAX: Final = 16
"""The code of a shape names up to this many arguments: Python takes seconds to compile thousands of names."""

_NUMBERS_MAX: Final = 64
"""Sets of more numbers have the keys of these."""

_SETS: Final[WeakValueDictionary[tuple[object, ...], frozenset[object]]] = WeakValueDictionary()


def _set_of(values: tuple[object, ...]) -> frozenset[object]:
    """Return the set of these strings or numbers, or of the keys of many. Rules with equal lists share it."""
    found = _SETS.get(values)
    if found is None:
        are_keys = _among(values) == "among many numbers"
        found = _SETS[values] = frozenset(map(key_of, values) if are_keys else values)
    return found


def _counted(op: str, value: int) -> tuple[str, list[object]]:
    """Return how an aggregate compares how many times, or values, there are, and its limits."""
    limits: list[object] = [limit for limit in (value, value + 1) if limit]
    match op:
        case "gt":
            return "gte", limits[-1:]
        case "lte":
            return "lt", limits[-1:]
        case "gte" | "lt":
            return op, limits[:-1]
        case _:
            return op, limits


def _junction(word: Literal["and", "or"], members: list[Shape]) -> Shape:
    left = [member for member in members if member is not (TRUE if word == "and" else FALSE)]
    return left[0] if len(left) == 1 else Junction(word, tuple(left))


def _equals(value: LeafValue) -> Test:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, tuple):
        return "array"
    # In Python, True equals 1 and False equals 0. No other JSON values of different types are equal.
    return "zero or one" if value in (0, 1) else "scalar"


def _compared(value: LeafValue) -> object:
    return list(value) if isinstance(value, tuple) else value


def _among(values: tuple[object, ...]) -> Test:
    """Return the test that a fact is one of these texts or numbers."""
    if not values:
        return "among none"
    if isinstance(values[0], str):
        return "among texts"
    # A set of many numbers that a caller has computed takes time quadratic in their number.
    return "among numbers" if len(values) <= _NUMBERS_MAX else "among many numbers"


def _within(low: str | float, high: str | float) -> tuple[Test, list[str | float]]:
    """Return the test that a fact is in a range, and its ends. An open end needs no test."""
    if isinstance(low, str):
        return "texts between", [low, high]
    if high == LARGEST:
        return "at least", [low]
    return ("at most", [high]) if low == -LARGEST else ("between", [low, high])


def _beyond(range_: Condition, other: Condition) -> tuple[Test, LeafValue] | None:
    """Return the test for `x > 5` or `x < 5`, which is a range with an open end and without its other end."""
    match range_, other:
        case language.Leaf(fact, "between", ends), language.Leaf(same, "neq", end) if fact == same:
            # True is not 1.
            if not isinstance(end, bool) and ends in ((end, LARGEST), (-LARGEST, end)):
                return "above" if ends == (end, LARGEST) else "below", end
    return None
