"""Compiles shapes into functions: one event for many rules of a shape, or many events for few rules.

A function looks up facts and keys once for all its rules.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from engine.evaluation.dispatch.combinations import Combinations, rules_of_bits
from engine.evaluation.dispatch.compilation.event_access import fact_lookups, key_lookup
from engine.evaluation.dispatch.compilation.fused_stream import HeldMemory, HeldPattern, fuse_few, fuse_many
from engine.evaluation.dispatch.compilation.generated_code import block, factory, names_given, numbered
from engine.evaluation.dispatch.compilation.memory_access import RowWriter
from engine.evaluation.dispatch.members import EnabledRule
from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.values import Event, Relations, split_name
from engine.evaluation.plan.ir import Abstraction, Memories
from engine.evaluation.plan.known import Known
from engine.evaluation.plan.shapes import Junction, Predicate, Shape, updates
from engine.evaluation.rules import Fired
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.slices import State
from engine.language.condition import Condition

Values = Mapping[str, Any]

Fire = Callable[[int], None]
"""Called with the priority of each rule that fires."""

Observe = Callable[[list[Any], Iterable[Any], Values, Values, int, int, Relations | None, Fire], None]
"""Evaluates an event for rows of one shape: (constants, rest, fields, vars, time in microseconds, number of
the event, relations, fire)."""


class Row(NamedTuple):
    """A rule or an update as a row: the function that its shape shares, and its own constants.

    `rest` holds the constants that are read only if the first test succeeds. For rows that are selected one
    by one, it holds all constants.
    """

    observe: Observe
    constants: list[Any]
    rest: list[Any]


class Stream(Protocol):
    """What a function over many events needs from its detector."""

    clock_us: int | None
    events_seen: int
    state: State

    @property
    def latest_us(self) -> int:
        """The latest timestamp that an event may have."""

    def time_of(self, stamped_us: int, clock_us: int) -> int:
        """Return the time of an event stamped before the clock or after `latest_us`. May raise Refusal."""

    def settle(self, now_us: int, tick: int) -> None:
        """Hold the bounds of the state after event `tick`; see `State.settle`."""


_FEW_NODES: Final = 64
"""Rules of up to this many nodes count as few: their code takes some kilobytes."""

ObserveMany = Callable[[Iterable[Event], Stream, list[Fired]], None]
"""(events, detector, results): appends the rules that fire at each event to the results."""


class Compiler:
    """Compiles the rules of one detector."""

    def __init__(self, state: State, patterns: PatternWork, lookups: Lookups) -> None:
        self._state = state
        self._patterns = patterns
        self._lookups = lookups
        # A function lives as long as a rule uses it.
        self._functions: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()

    def row(
        self,
        condition: Condition,
        birth: int,
        memories: Memories,
        known: Known | None,
        *,
        selected: bool = False,
    ) -> Row:
        """Compile a condition that reads its memories, for events of which `known` is known.

        Its function takes rows as columns or, if they are `selected` one by one, each row as a tuple.
        """
        parts = Abstraction(self._patterns.finder, known)
        return self._row(parts, parts.reader(condition, birth, memories), selected=selected)

    def updater(self, name: NodeName, memories: Memories, known: Known | None, *, selected: bool) -> Row:
        """Compile the update of a temporal node's memory; see `row`."""
        parts = Abstraction(self._patterns.finder, known)
        shape = parts.updater(name.condition, name.path, name.birth, memories)
        return self._row(parts, shape, selected=selected)

    def _row(self, parts: Abstraction, shape: Shape, *, selected: bool) -> Row:
        tables = tuple(
            self._state.tables[path] if number in parts.sliced else None
            for number, path in enumerate(parts.paths)
        )
        name = (selected, shape, parts.facts, parts.paths, *map(id, tables))
        observe = self._functions.get(name)
        if observe is None:
            globals_ = self._state.globals
            given = [*self._names(parts), *tables, globals_, globals_.cells, globals_.ticks]
            observe = _rows_factory(_rows_source(shape, parts, selected=selected))(given)
            self._functions[name] = observe
        count = 0 if selected else _first_constants(shape, parts)
        return Row(observe, parts.constants[:count], parts.constants[count:])

    def stream(self, enabled: Sequence[EnabledRule], nodes: int) -> ObserveMany:
        """Compile the function that evaluates many events for few rules of `nodes` nodes, given in order.

        It also updates the memories. With few rules, looking up candidates would cost more than evaluation.
        """
        state = self._state
        births: dict[int, int] = {}
        rules = []
        for rule, birth, names, *_ in enabled:
            held = [state.stores[name] for name in names]
            cells = tuple([store if isinstance(store, int) else None for store in held])
            rules.append((rule.condition, births.setdefault(birth, len(births)), cells))
        fuse = fuse_few if nodes <= _FEW_NODES else fuse_many
        bind, parts, tables = fuse(tuple(rules), begins=self._patterns.bounded)

        def bound(constant: Any) -> Any:
            if type(constant) is HeldPattern:
                return self._patterns.finder(*constant)
            return state.stores[named(constant)] if type(constant) is HeldMemory else constant

        def named(memory: HeldMemory) -> NodeName:
            return enabled[memory.rule].memories[memory.place]

        given = [*map(bound, parts.constants), *self._names(parts)]
        for memory in tables:
            table = state.tables[named(memory).path]
            given += [table.shards, table.seen, table.log.append]
        combinations = Combinations(functools.partial(rules_of_bits, [one.rule for one in enabled]))
        given += [combinations, state.globals.cells, self._patterns.begin, self._lookups.relations]
        observe_many: ObserveMany = bind(given)
        return observe_many

    def _names(self, parts: Abstraction) -> list[Any]:
        """Return the arguments for each fact: its name, the steps of a dotted name, the look-up if needed."""
        given: list[Any] = []
        for number, said in enumerate(parts.facts):
            _, whole, steps = split_name(said)
            given += [whole, steps] if steps else [whole]
            if number in parts.looked_up:
                given.append(self._lookups.of(said))
        return given


_ROWS: Final = """\
def bind(given):
 {given}globals_, cells, ticks = given
 def observe(constants, rest, fields, vars, now, tick, relations, fire):
  {lookups}
  {rows}
 return observe
"""


def _first_constants(shape: Shape, parts: Abstraction) -> int:
    """Return the number of constants that the first test of a row needs."""
    match shape:
        case Junction("and", (Predicate(_, _, constants), *_)):
            return len(constants)
        case _:
            return len(parts.constants)


def _rows(shape: Shape, parts: Abstraction, *, selected: bool) -> list[str]:
    """Return the statements that evaluate the rows of a shape.

    If the first test of a row fails, only the constants of that test are read. With many rows, cache misses
    on the other constants would dominate the cost.
    """
    writer = RowWriter(parts.quantities, {})
    first = _first_constants(shape, parts)
    count = len(parts.constants)
    if selected:
        test = f"if {writer.verdict(shape)}: fire(priority)"
        lines = writer.lines if updates(shape) else [test]
        return [
            f"for {numbered('c', range(count))}priority, _ in rest:",
            *(f" {line}" for line in lines),
        ]
    if not first:
        return [
            "each = iter(rest)",
            f"for {numbered('c', range(count))}priority, in zip({', '.join(['each'] * (count + 1))}):",
            f" if {writer.verdict(shape)}: fire(priority)",
        ]
    columns = "c0 in constants[0]" if first == 1 else f"{numbered('c', range(first))} in zip(*constants)"
    if updates(shape):
        writer.verdict(shape)
        return [f"for {columns}:", *(f" {line}" for line in writer.lines)]
    tests = [writer.verdict(shape)]
    if first < count and isinstance(shape, Junction):
        tests = [writer.verdict(member) for member in shape.members]
    width = count + 1 - first
    return [
        f"place = -{width}",
        f"for {columns}:",
        f" place += {width}",
        f" if {tests[0]}:",
        *(
            [f"  {numbered('c', range(first, count))}priority, = rest[place : place + {width}]"]
            if width > 1
            else ["  priority = rest[place]"]
        ),
        f"  if {' and '.join(tests[1:]) or 'True'}: fire(priority)",
    ]


def _rows_source(shape: Shape, parts: Abstraction, *, selected: bool) -> str:
    lookups = fact_lookups(parts.facts, parts.quantities, ())
    for number, path in enumerate(parts.paths):
        if number in parts.sliced:
            lookups += [f"k{number}, s{number} = table{number}.key, table{number}.slot"]
        else:
            lookups += key_lookup(parts, number, path)
    return _ROWS.format(
        given=names_given(parts) + numbered("table", range(len(parts.paths))),
        lookups=block(lookups, 2),
        rows=block(_rows(shape, parts, selected=selected), 2),
    )


# Rules of one shape share their code.
_rows_factory: Final = functools.lru_cache(maxsize=256)(factory)
