"""Condition -> code. One Python function for each shape of rule; rules of one shape differ in constants only.

The function observes one event: it updates every temporal memory of the rule, whatever the truth of its
neighbours, and returns the verdict. Temporal nodes become statements, innermost first; all that is stateless
stays an expression, where stopping early cannot be seen.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, assert_never

from engine.evaluation.facts import Relations, dig, equal, holds, key_of, split_name
from engine.evaluation.slices import KeyTable, Memory, NodeName, State
from engine.evaluation.temporal import (
    HISTORICALLY,
    HISTORICALLY_FOR_STRONG,
    HISTORICALLY_FOR_WEAK,
    NEVER,
    ONCE,
    ONCE_WITHIN,
    SINCE,
    SINCE_WITHIN,
    WINDOW_US_MAX,
    Operator,
)
from engine.language import condition as language
from engine.language.condition import Condition, FactArg, LeafValue
from engine.language.limits import Limits
from engine.language.patterns import compile_pattern

Observe = Callable[[Mapping[str, Any], Mapping[str, Any], int, int, Relations], bool]
"""(fields, vars, time in microseconds, number of the event, relations) -> verdict."""


class Program(NamedTuple):
    """A compiled rule: its function and what it needs of the world around it."""

    observe: Observe
    memories: tuple[Memory, ...]
    """One for each temporal node of the condition; each was acquired and must be released."""
    relations: frozenset[str]
    matched: Mapping[str, int]
    """The names whose texts are tried against patterns, and up to how many bytes every one of them is."""


def compile_rule(condition: Condition, state: State, birth: int, limits: Limits) -> Program:
    """Give the program of a valid condition whose history begins with event number `birth`."""
    writer = _Writer(state, birth, limits)
    verdict = writer.expression(condition, _Scope((), "", 1))
    source = writer.source(verdict)
    observe = _factory(source)(writer.constants)
    return Program(observe, tuple(writer.memories), frozenset(writer.relations), writer.matched)


@functools.lru_cache(maxsize=4096)
def _factory(source: str) -> Callable[[list[Any]], Observe]:
    """Give the factory of one shape. Its source holds no word of a caller's: those are constants."""
    namespace: dict[str, Any] = dict(_NAMES)
    exec(compile(source, "<rule>", "exec"), namespace)  # noqa: S102 -- the source is this module's own
    factory: Callable[[list[Any]], Observe] = namespace["bind"]
    return factory


_NAMES: Final[dict[str, Any]] = {
    "NEVER": NEVER,
    "dig": dig,
    "equal": equal,
    "holds": holds,
    "key_of": key_of,
}


class _Scope(NamedTuple):
    """Where a node stands: inside which keys, and how far its statements are indented."""

    path: tuple[str, ...]
    key: str
    """The variable that holds this path's key; empty outside of any."""
    depth: int


class _Writer:
    """Writes the function of one rule: statements, constants, memories."""

    def __init__(self, state: State, birth: int, limits: Limits) -> None:
        self._state = state
        self._birth = birth
        self._limits = limits
        self._lines: list[str] = []
        self._facts: dict[str, str] = {}
        self._lookups: list[str] = []
        self._tables: dict[tuple[str, ...], str] = {}
        self._variables = 0
        self._numbered: dict[int, str] = {}
        self.constants: list[Any] = []
        self.memories: list[Memory] = []
        self.relations: set[str] = set()
        self.matched: dict[str, int] = {}

    def source(self, verdict: str) -> str:
        """Give the whole source: a factory that binds the constants and returns the rule's function."""
        names = "".join(f"c{number}, " for number in range(len(self.constants)))
        return "\n".join(
            (
                "def bind(constants):",
                f"  {names}= constants" if names else "  pass",
                "  def observe(fields, vars, now, tick, relations):",
                *(f"    {line}" for line in self._lookups),
                *(f"  {line}" for line in self._lines),
                f"    return {verdict}",
                "  return observe",
            )
        )

    # -- stateless ------------------------------------------------------------------------------------------

    def expression(self, node: Condition, scope: _Scope) -> str:
        """Write what the node needs done, and give an expression for its truth now, without side effects."""
        match node:
            case language.Leaf():
                return self._leaf(node)
            case language.Ref():
                return self._ref(node)
            case language.InRelation():
                return self._in_relation(node)
            case language.All():
                return "(" + " and ".join([self.expression(member, scope) for member in node.members]) + ")"
            case language.Any():
                return "(" + " or ".join([self.expression(member, scope) for member in node.members]) + ")"
            case language.Not():
                return f"(not {self.expression(node.inner, scope)})"
            case language.Keyed():
                return self._keyed(node, scope)
            case language.Once():
                return self._temporal(node, ONCE, scope, inner=node.inner)
            case language.Historically():
                return self._temporal(node, HISTORICALLY, scope, inner=node.inner)
            case language.Since():
                return self._temporal(node, SINCE, scope, left=node.left, right=node.right)
            case language.OnceWithin():
                return self._temporal(node, ONCE_WITHIN, scope, inner=node.inner)
            case language.HistoricallyFor():
                strong = node.boundary == "strong"
                operator = HISTORICALLY_FOR_STRONG if strong else HISTORICALLY_FOR_WEAK
                return self._temporal(node, operator, scope, inner=node.inner)
            case language.SinceWithin():
                return self._temporal(node, SINCE_WITHIN, scope, left=node.left, right=node.right)
            case _:
                assert_never(node)

    def _leaf(self, leaf: language.Leaf) -> str:
        fact = self._fact(leaf.fact)
        value = leaf.value
        match leaf.op:
            case "eq":
                return self._equals(fact, value)
            case "neq":
                return f"({fact} is not None and not {self._equals(fact, value)})"
            case "in" | "nin" if isinstance(value, tuple):
                among = f"({_is_of(fact, value)} and {fact} in {self._constant(frozenset(value))})"
                return among if leaf.op == "in" else f"({fact} is not None and not {among})"
            case "contains":
                return self._contains(fact, value)
            case "matches" if isinstance(value, str):
                pattern = compile_pattern(value, self._limits)
                known = self.matched.get(leaf.fact, pattern.text_bytes_max)
                self.matched[leaf.fact] = min(known, pattern.text_bytes_max)
                return f"(type({fact}) is str and {self._constant(pattern.found_in)}({fact}))"
            case "between" if isinstance(value, tuple):
                low, high = map(self._constant, value)
                return f"({_is_of(fact, value)} and {low} <= {fact} <= {high})"
            case _:
                raise AssertionError(leaf)

    def _equals(self, fact: str, value: LeafValue) -> str:
        if isinstance(value, bool):
            return f"({fact} is {value})"
        if isinstance(value, tuple):
            return f"equal({fact}, {self._constant(list(value))})"
        # Of all JSON values, only booleans equal one of another type in Python: the numbers 1 and 0.
        if value in (0, 1):
            return f"({fact} == {self._constant(value)} and type({fact}) is not bool)"
        return f"({fact} == {self._constant(value)})"

    def _contains(self, fact: str, value: LeafValue) -> str:
        constant = self._constant(value)
        if isinstance(value, str):
            return f"((type({fact}) is str or type({fact}) is list) and {constant} in {fact})"
        return f"holds({fact}, {constant})"

    def _ref(self, ref: language.Ref) -> str:
        left, right = self._fact(ref.fact), self._fact(ref.reference)
        present = f"{left} is not None and {right} is not None"
        match ref.op:
            case "eq":
                return f"({present} and equal({left}, {right}))"
            case "neq":
                return f"({present} and not equal({left}, {right}))"
            case "in":
                return f"({left} is not None and holds({right}, {left}))"
            case "nin":
                return f"({left} is not None and type({right}) is list and not holds({right}, {left}))"
            case _:
                raise AssertionError(ref)

    def _in_relation(self, node: language.InRelation) -> str:
        self.relations.add(node.relation)
        arguments = [
            self._fact(argument.fact) if isinstance(argument, FactArg) else self._constant(argument)
            for argument in node.args
        ]
        return f"relations.holds({', '.join([self._constant(node.relation), *arguments])})"

    # -- temporal -------------------------------------------------------------------------------------------

    def _keyed(self, node: language.Keyed, scope: _Scope) -> str:
        key, verdict = self._variable(), self._variable()
        value = self._fact(node.key)
        path = (*scope.path, node.key)
        self._line(scope, f"{verdict} = False")
        self._line(scope, f"{key} = {value} if type({value}) is str else key_of({value})")
        self._line(scope, f"if {key} is not None:")
        inside = _Scope(path, key, scope.depth + 1)
        if scope.path:
            # A slice of a slice: the key is the tuple of all keys on the path.
            outer = f"(*{scope.key}, {key})" if len(scope.path) > 1 else f"({scope.key}, {key})"
            self._line(inside, f"{key} = {outer}")
        placeholder = len(self._lines)
        inner = self.expression(node.inner, inside)
        if path in self._tables:
            seen = self._tables[path]
            sighting = [f"if {key} in {seen}:", f"    {seen}[{key}] = tick"]
            self._lines[placeholder:placeholder] = ["  " * inside.depth + line for line in sighting]
        self._line(inside, f"{verdict} = {inner}")
        return verdict

    def _temporal(
        self,
        node: Condition,
        operator: Operator,
        scope: _Scope,
        **operands: Condition,
    ) -> str:
        parts = {name: self.expression(operand, scope) for name, operand in operands.items()}
        window_us = min(node.window_us, WINDOW_US_MAX) if isinstance(node, language.Windowed) else None
        memory = self._state.acquire(
            NodeName(node, scope.path, self._birth), window_us if operator.expires else None
        )
        self.memories.append(memory)
        if window_us is not None:
            parts["edge"] = f"now - {self._constant(window_us)}"
        verdict = self._variable()
        for line in operator.update:
            for written in self._accessed(line, memory, scope):
                self._line(scope, written.format(verdict=verdict, **parts))
        return verdict

    def _accessed(self, line: str, memory: Memory, scope: _Scope) -> list[str]:
        """Give a line of an operator's code with the access to its memory filled in."""
        code = line.strip()
        indent = line[: len(line) - len(code)]
        if not scope.path:
            single = self._shared(memory.single)
            filled = {
                "{read}": f"{single}[0]",
                "{write}": [f"{single}[0] = now"],
                "{clear}": [f"{single}[0] = NEVER"],
            }
        else:
            by_key, table = self._shared(memory.by_key), self._state.table(scope.path)
            filled = {
                "{read}": f"{by_key}.get({scope.key}, NEVER)",
                "{write}": [
                    f"{by_key}[{scope.key}] = now",
                    f"if {scope.key} not in {self._seen(table)}:",
                    f"    {self._shared(table)}.admit({scope.key}, tick)",
                ],
                "{clear}": [f"{by_key}.pop({scope.key}, None)"],
            }
        whole = filled.get(code)
        if isinstance(whole, list):
            return [indent + part for part in whole]
        return [indent + code.replace("{read}", str(filled["{read}"]))]

    def _seen(self, table: KeyTable) -> str:
        if table.path not in self._tables:
            self._tables[table.path] = self._constant(table.seen)
        return self._tables[table.path]

    # -- names ----------------------------------------------------------------------------------------------

    def _fact(self, name: str) -> str:
        """Give the variable that holds the value of a name; each is looked up once for each event."""
        if name not in self._facts:
            of_vars, whole, steps = split_name(name)
            source = "vars" if of_vars else "fields"
            variable = self._facts[name] = f"f{len(self._facts)}"
            key = self._constant(whole)
            found = f"dig({source}, {key}, {self._constant(steps)})" if steps else f"{source}.get({key})"
            self._lookups.append(f"{variable} = {found}")
        return self._facts[name]

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"

    def _shared(self, value: Any) -> str:
        """Give the constant of a dict or list of this detector's, which may have one already."""
        if id(value) not in self._numbered:
            self._numbered[id(value)] = self._constant(value)
        return self._numbered[id(value)]

    def _variable(self) -> str:
        self._variables += 1
        return f"t{self._variables}"

    def _line(self, scope: _Scope, text: str) -> None:
        self._lines.append("  " * scope.depth + text)


def _is_of(fact: str, values: tuple[object, ...]) -> str:
    """Give the test that a fact is of the type of the values; of no values, that can never be told."""
    if not values:
        return "False"
    if isinstance(values[0], str):
        return f"type({fact}) is str"
    return f"(type({fact}) is int or type({fact}) is float)"
