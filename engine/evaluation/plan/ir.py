"""Turns conditions into shapes: a shape is a condition without its names and values.

Rules of one shape share their code. A rule with a known shape needs no compilation, and the rules of one
shape are the rows of one loop.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.facts.lookups import WALKED_MAX
from engine.evaluation.facts.values import split_name, value_of
from engine.evaluation.memory import Regime
from engine.evaluation.paths import Path, fact_of, step_of
from engine.evaluation.plan.known import Known, truth
from engine.evaluation.plan.requirements import operands_of, operator_of
from engine.evaluation.plan.shapes import (
    FALSE,
    TRUE,
    Junction,
    Memory,
    Negation,
    Predicate,
    Shape,
    Slice,
    Tally,
)
from engine.evaluation.plan.temporal import WINDOW_US_PLAIN, Operator
from engine.evaluation.plan.triggers import Comparison
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, LeafValue, ScaledFact
from engine.language.operators import COMPARISONS, LARGEST

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
        number = self._path(path) if path else -1
        memory = self._temporal(node, path, updated=True)
        return Slice(number, memory) if path else memory

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
                comparison, end = beyond
                return self._predicate(comparison, [self._fact(fact)], [end])
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
                    # A table has turned to the event only if `where` is true.
                    return Slice(number, shape)
                return Slice(number, shape, self._shape(where, path))
            case _:
                return self._temporal(node, path, updated=self._updates)

    def _temporal(self, node: Condition, path: Path, *, updated: bool) -> "Memory | Tally":
        if isinstance(node, language.Aggregate):
            return self._tally(node, path, updated=updated)
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

    def _tally(self, node: Comparison, path: Path, *, updated: bool) -> Tally:
        records, _, viewed = self._memories[node, path]
        window_us = node.window_us
        constants: list[Any] = [records] if window_us is None else [records, window_us]
        facts = [] if isinstance(node, language.Count) else [self._fact(node.fact)]
        counted = node.inner if isinstance(node, language.Count) else node.where
        add = "{store}.add({at}, {f0})" if facts else "{store}.add({at})"
        if isinstance(node, language.Count | language.Distinct):
            truth = _counted(node.op, node.value, constants, windowed=window_us is not None)
        else:
            mean = isinstance(node, language.Avg)
            found = "{store}.mean({slot}, now)" if mean else "{store}.added({slot}, now)[0]"
            limit = self._limit(node.value, facts, constants)
            truth = f"{'found' if mean else found} {COMPARISONS[node.op]} {limit}"
            if mean:
                truth = f"((found := {found}) is not None and {truth})"
            if len(facts) > 1:
                truth = f"((limit := scaled({{f1}}, {{c{len(constants) - 1}}})) is not None and {truth})"
        numbers = tuple(map(self._constant, constants))
        added = None
        if updated:
            tests: list[Shape] = [Predicate("{f0} is not None", (facts[0],), ())] if facts else []
            if counted is not None:
                tests.append(self._shape(counted, path))
            added = tests[0] if len(tests) == 1 else _junction("and", tests)
        number = self._path(path) if path else -1
        self.sliced.add(number)
        far = window_us is not None and window_us > WINDOW_US_PLAIN
        return Tally(number, far, window_us is not None, tuple(facts), numbers, truth, add, added, viewed)

    def _limit(self, value: float | ScaledFact, facts: list[int], constants: list[Any]) -> str:
        """Return the expression for what a sum is compared with."""
        if isinstance(value, ScaledFact):
            facts.append(self._fact(value.fact))
            constants.append(float(value.factor))
            return "limit"
        constants.append(value)
        return f"{{c{len(constants) - 1}}}"

    # -- predicates -----------------------------------------------------------------------------------------

    def _leaf(self, leaf: language.Leaf) -> Shape:
        value = leaf.value
        fact = self._fact(leaf.fact)
        match leaf.op:
            case "eq":
                return self._predicate(_equals(value), [fact], [_compared(value)])
            case "neq":
                return self._predicate(
                    f"({{f0}} is not None and not {_equals(value)})", [fact], [_compared(value)]
                )
            case "in" | "nin" if isinstance(value, tuple):
                among = _among(value)
                text = among if leaf.op == "in" else f"({{f0}} is not None and not {among})"
                return self._predicate(text, [fact], [_set_of(value)])
            case "contains" if isinstance(value, str):
                text = (
                    "((type({f0}) is str or type({f0}) is list) and "
                    f"({{c0}} in {{f0}} if len({{f0}}) <= {WALKED_MAX} else {{l0}}.contains({{f0}}, {{c0}})))"
                )
                return self._predicate(text, [fact], [value])
            case "contains":
                return self._predicate("(type({f0}) is list and {l0}.holds({f0}, {c0}))", [fact], [value])
            case "matches" if isinstance(value, str):
                found_in = self._finder(leaf.fact, value)
                return self._predicate("(type({f0}) is str and {c0}({f0}))", [fact], [found_in])
            case "between" if isinstance(value, tuple):
                within, ends = _within(*value)
                return self._predicate(within, [fact], ends)
            case _:
                raise AssertionError(leaf)

    def _ref(self, ref: language.Ref) -> Shape:
        facts = [self._fact(ref.fact), self._fact(ref.reference)]
        present = "{f0} is not None and {f1} is not None"
        nested = "type({f0}) is list or type({f0}) is dict"
        same = f"({{l0}}.equals({{f0}}, {{f1}}, {{l1}}) if {nested} else equal({{f0}}, {{f1}}))"
        among = "{f0} is not None and type({f1}) is list and"
        match ref.op:
            case "eq":
                return self._predicate(f"({present} and {same})", facts, [])
            case "neq":
                return self._predicate(f"({present} and not {same})", facts, [])
            case "in":
                return self._predicate(f"({among} {{l1}}.holds({{f1}}, {{f0}}, {{l0}}))", facts, [])
            case "nin":
                return self._predicate(f"({among} not {{l1}}.holds({{f1}}, {{f0}}, {{l0}}))", facts, [])
            case _:
                raise AssertionError(ref)

    def _in_relation(self, relation: str, args: tuple[FactArg | str | float | bool, ...]) -> Shape:
        self.asks_relations = True
        if len(args) > _ARGUMENTS_NAMED_MAX:
            return self._predicate(
                "relations.holds({c0}, *{c1}(fields, vars))", [], [relation, _values_of(args)]
            )
        facts: list[int] = []
        constants: list[Any] = [relation]
        parts = ["{c0}"]
        for argument in args:
            if isinstance(argument, FactArg):
                parts.append(f"{{f{len(facts)}}}")
                facts.append(self._fact(argument.fact))
            else:
                parts.append(f"{{c{len(constants)}}}")
                constants.append(argument)
        return self._predicate(f"relations.holds({', '.join(parts)})", facts, constants)

    # -- numbers --------------------------------------------------------------------------------------------

    def _predicate(self, expression: str, facts: list[int], constants: list[Any]) -> Predicate:
        self.looked_up |= {fact for place, fact in enumerate(facts) if f"{{l{place}}}" in expression}
        self.quantities.update(fact for place, fact in enumerate(facts) if _asks_number(expression, place))
        return Predicate(expression, tuple(facts), tuple(map(self._constant, constants)))

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

_SETS: Final[WeakValueDictionary[tuple[object, ...], frozenset[object]]] = WeakValueDictionary()


def _set_of(values: tuple[object, ...]) -> frozenset[object]:
    """Return the set of these strings or numbers. Rules with equal lists share it."""
    found = _SETS.get(values)
    if found is None:
        found = _SETS[values] = frozenset(values)
    return found


def _counted(op: str, value: int, constants: list[Any], *, windowed: bool) -> str:
    """Return the expression that compares how many times, or values, there are; it adds its constants."""

    def at_least(least: int) -> str:
        if not least:
            return "True"
        constants.append(least)
        within = " >= {edge}" if windowed else ""
        return f"({{since}} < {{store}}.nth({{slot}}, {{c{len(constants) - 1}}}){within})"

    match op:
        case "gte":
            return at_least(value)
        case "lt":
            return f"(not {at_least(value)})"
        case "gt":
            return at_least(value + 1)
        case "lte":
            return f"(not {at_least(value + 1)})"
        case _:
            exactly = f"({at_least(value)} and not {at_least(value + 1)})"
            return exactly if op == "eq" else f"(not {exactly})"


def _asks_number(expression: str, place: int) -> bool:
    return f"{{q{place}}}" in expression or f"{{x{place}}}" in expression


def _junction(word: str, members: list[Shape]) -> Shape:
    left = [member for member in members if member is not (TRUE if word == "and" else FALSE)]
    return left[0] if len(left) == 1 else Junction(word, tuple(left))


def _equals(value: LeafValue) -> str:
    if isinstance(value, bool):
        return "({f0} is {c0})"
    if isinstance(value, tuple):
        return "equal({f0}, {c0})"
    # In Python, True equals 1 and False equals 0. No other JSON values of different types are equal.
    if value in (0, 1):
        return "({f0} == {c0} and type({f0}) is not bool)"
    return "({f0} == {c0})"


def _compared(value: LeafValue) -> object:
    return list(value) if isinstance(value, tuple) else value


def _among(values: tuple[object, ...]) -> str:
    """Return the test that a fact is one of these texts or numbers."""
    if not values:
        return "False"
    if isinstance(values[0], str):
        return "(type({f0}) is str and {f0} in {c0})"
    return "((type({f0}) is int or type({f0}) is float) and {f0} in {c0})"


def _within(low: str | float, high: str | float) -> tuple[str, list[str | float]]:
    """Return the test that a fact is in a range, and its ends. An open end needs no test."""
    if isinstance(low, str):
        return "(type({f0}) is str and {c0} <= {f0} <= {c1})", [low, high]
    if high == LARGEST:
        return "({c0} <= {q0})", [low]
    return ("({q0} <= {c0})", [high]) if low == -LARGEST else ("({c0} <= {x0} <= {c1})", [low, high])


def _beyond(range_: Condition, other: Condition) -> tuple[str, LeafValue] | None:
    """Return the test for `x > 5` or `x < 5`, which is a range with an open end and without its other end."""
    match range_, other:
        case language.Leaf(fact, "between", ends), language.Leaf(same, "neq", end) if fact == same:
            # True is not 1.
            if not isinstance(end, bool) and ends in ((end, LARGEST), (-LARGEST, end)):
                return "({c0} < {q0})" if ends == (end, LARGEST) else "({q0} < {c0})", end
    return None
