"""Compiles shapes into functions: one event for many rules of a shape, or many events for few rules.

A function looks up facts and keys once for all its rules.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from engine.evaluation.dispatch.event_access import fact_lookups, key_lookup, slot_lookup
from engine.evaluation.dispatch.members import Program
from engine.evaluation.dispatch.memory_access import EagerWriter, RowWriter
from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.values import (
    Relations,
    dig,
    equal,
    part_of_key,
    scaled,
    slice_key_of,
    split_name,
)
from engine.evaluation.memory import NEVER, Regime
from engine.evaluation.paths import Path, is_filtered
from engine.evaluation.plan.ir import Abstraction, Known, Memories
from engine.evaluation.plan.requirements import requirements_of
from engine.evaluation.plan.shapes import Junction, Predicate, Shape, updates
from engine.evaluation.rules import Rule
from engine.evaluation.state.slices import SETTLE_EVERY, NodeName, State
from engine.language.condition import CLEAR_OF_HALVES, PRODUCT_MAX, Condition, microseconds
from engine.language.operators import LARGEST

Values = Mapping[str, Any]

Fire = Callable[[int], None]
"""Called with the priority of each rule that fires."""

Observe = Callable[[list[Any], Iterable[Any], Values, Values, int, int, Relations | None, Fire], None]
"""(constants, rest, fields, vars, time in microseconds, number of the event, relations, fire)."""

Event = tuple[Values, float, Values | None]
"""Fields, timestamp in milliseconds, vars."""

Fired = tuple[Rule, ...]
"""The rules that fire, in order of priority."""


class Row(NamedTuple):
    """A rule or an update as a row: the function that its shape shares, and its own constants.

    `rest` are the constants that are read only if the first test succeeds. If rows are selected one by one,
    `rest` are all.
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

    def settle(self) -> None:
        """Hold the bounds of the state; see `State.settle`."""


_FEW_NODES: Final = 64
"""The code of so many nodes takes some kilobytes."""

ObserveMany = Callable[[Iterable[Event], Stream, list[Fired]], None]
"""(events, detector, results): appends the rules that fire at each event to the results."""


class _Memory(NamedTuple):
    """A memory of a rule, in what is compiled for all detectors that have equal rules."""

    rule: int
    place: int


class _Pattern(NamedTuple):
    """The test of a pattern, likewise."""

    fact: str
    pattern: str


class Fused(NamedTuple):
    """Rules as one function, which each detector binds to its own memories and patterns."""

    bind: Callable[[list[Any]], Any]
    parts: Abstraction
    tables: list[_Memory]
    """For each table of keys, one of its memories."""


Fusible = tuple[tuple[Condition, int, tuple[int | None, ...]], ...]
"""Of each rule the condition, the birth, and the cells of its memories; None for a memory that is in no cell.

Births are counted from 0, because only those of different rules are compared.
"""


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

        The rows that its function takes are columns or, if they are selected one by one, each a tuple.
        """
        parts = Abstraction(self._patterns.finder, known)
        return self._row(parts, parts.reader(condition, birth, memories), selected=selected)

    def updater(
        self, name: NodeName, memories: Memories, known: Known | None, *, selected: bool = False
    ) -> Row:
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
            whole = self._state.whole
            given = [*self._names(parts), *tables, whole, whole.cells, whole.ticks]
            observe = _rows_factory(_rows_source(shape, parts, selected=selected))(given)
            self._functions[name] = observe
        count = 0 if selected else _first_constants(shape, parts)
        return Row(observe, parts.constants[:count], parts.constants[count:])

    def stream(self, programs: Sequence[Program], nodes: int) -> ObserveMany:
        """Compile the function that evaluates many events for few rules of `nodes` nodes, given in order.

        It also updates the memories. With few rules, looking up candidates would cost more than evaluation.
        """
        state = self._state
        births: dict[int, int] = {}
        rules = []
        for rule, birth, names, *_ in programs:
            held = [state.stores[name] for name in names]
            cells = tuple([store if isinstance(store, int) else None for store in held])
            rules.append((rule.condition, births.setdefault(birth, len(births)), cells))
        fuse = _fused_few if nodes <= _FEW_NODES else _fused_many
        bind, parts, tables = fuse(tuple(rules), begins=self._patterns.bounded)

        def bound(constant: Any) -> Any:
            if type(constant) is _Pattern:
                return self._patterns.finder(*constant)
            return state.stores[named(constant)] if type(constant) is _Memory else constant

        def named(memory: _Memory) -> NodeName:
            return programs[memory.rule].memories[memory.place]

        given = [*map(bound, parts.constants), *self._names(parts), *((one.rule,) for one in programs)]
        for memory in tables:
            table = state.tables[named(memory).path]
            given += [table.shards, table.seen, table.log.append]
        given += [state.whole.cells, self._patterns.begin, self._lookups.relations]
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
 {given}whole, cells, ticks = given
 def observe(constants, rest, fields, vars, now, tick, relations, fire):
  {lookups}
  {rows}
 return observe
"""

_MANY: Final = """\
def bind(given):
 {given}cells, begin, relations_of = given
 def observe_many(events, detector, results):
  clock = NEVER if detector.clock_us is None else detector.clock_us
  latest, tick, state = detector.latest_us, detector.events_seen, detector.state
  append, tracking = results.append, state.tracking
  {load}
  try:
   for fields, timestamp_ms, vars in events:
    now = timestamp_ms * 1000
    if type(now) is not int:
     product, now = now, round(now)
     if not (-NEAR < product - now < NEAR and -PRODUCT_MAX < product < PRODUCT_MAX):
      now = microseconds(timestamp_ms, 1000)
    if not clock <= now <= latest:
     now = detector.time_of(now, clock)
    clock = now
    tick += 1
    {lookups}
    {lines}
    {fired}
    {settle}
    append(fired)
  finally:
   {store}
   if clock != NEVER:
    detector.clock_us, detector.events_seen = clock, tick
 return observe_many
"""

_GLOBALS: Final[dict[str, Any]] = {
    "LEAST": -int(LARGEST),
    "MOST": int(LARGEST),
    "NAN": nan,
    "NEAR": CLEAR_OF_HALVES,
    "NEVER": NEVER,
    "NOTHING": {},
    "PRODUCT_MAX": PRODUCT_MAX,
    "dig": dig,
    "equal": equal,
    "microseconds": microseconds,
    "part_of_key": part_of_key,
    "scaled": scaled,
    "slice_key_of": slice_key_of,
}


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
    writer = RowWriter(parts.quantities)
    first = _first_constants(shape, parts)
    count = len(parts.constants)
    if selected:
        test = f"if {writer.verdict(shape)}: fire(priority)"
        lines = writer.lines if updates(shape) else [test]
        return [
            f"for {_numbered('c', range(count))}priority, _ in rest:",
            *(f" {line}" for line in lines),
        ]
    if not first:
        return [
            "each = iter(rest)",
            f"for {_numbered('c', range(count))}priority, in zip({', '.join(['each'] * (count + 1))}):",
            f" if {writer.verdict(shape)}: fire(priority)",
        ]
    columns = "c0 in constants[0]" if first == 1 else f"{_numbered('c', range(first))} in zip(*constants)"
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
            [f"  {_numbered('c', range(first, count))}priority, = rest[place : place + {width}]"]
            if width > 1
            else ["  priority = rest[place]"]
        ),
        f"  if {' and '.join(tests[1:]) or 'True'}: fire(priority)",
    ]


def _numbered(letter: str, numbers: Iterable[int]) -> str:
    return "".join(f"{letter}{number}, " for number in numbers)


def _rows_source(shape: Shape, parts: Abstraction, *, selected: bool) -> str:
    lookups = fact_lookups(parts.facts, parts.quantities)
    for number, path in enumerate(parts.paths):
        if number in parts.sliced:
            lookups += [f"k{number}, s{number} = table{number}.key, table{number}.slot"]
        else:
            lookups += key_lookup(parts, number, path)
    return _ROWS.format(
        given=_given(parts) + _numbered("table", range(len(parts.paths))),
        lookups=_block(lookups, 2),
        rows=_block(_rows(shape, parts, selected=selected), 2),
    )


def _stream_source(parts: Abstraction, writer: EagerWriter, verdicts: list[str], *, begins: bool) -> str:
    lookups = (["begin(fields, vars)"] if begins else []) + fact_lookups(parts.facts, writer.quantities)
    tables = ""
    for number, path in enumerate(parts.paths):
        if not is_filtered(path):
            lookups += slot_lookup(parts, number, None)
        if number in parts.sliced:
            tables += f"shards{number}, seen{number}, log{number}, "
    if begins or parts.asks_relations or any(name.startswith("$") for name in parts.facts):
        lookups.insert(0, "vars = vars or NOTHING")
    if parts.asks_relations:
        lookups.insert(1, "relations = relations_of(vars)")
    constants, rules = _numbered("c", range(len(parts.constants))), _numbered("r", range(len(verdicts)))
    settle = [
        f"if state.due or not tick % {SETTLE_EVERY}:",
        " detector.clock_us, detector.events_seen = clock, tick",
        " detector.settle()",
        " tracking = state.tracking",
    ]
    return _MANY.format(
        given=constants + _given(parts) + rules + tables,
        load=_block([f"m{cell} = cells[{cell}]" for cell in writer.cells], 2),
        lookups=_block(lookups, 4),
        lines=_block(writer.lines, 4),
        fired=_block(_fired(verdicts), 4),
        settle=_block(settle if tables else [], 4),
        store=_block([f"cells[{cell}] = m{cell}" for cell in writer.cells], 3),
    )


def _fired(verdicts: list[str]) -> list[str]:
    """Return the statements that collect the rules that fire. Each rule comes as a tuple of its own."""
    if not verdicts:
        return ["fired = ()"]
    lines = [f"fired = r0 if {verdicts[0]} else ()"]
    return lines + [f"if {verdict}: fired += r{number}" for number, verdict in enumerate(verdicts) if number]


def _given(parts: Abstraction) -> str:
    """Return the variables that take the values of `_names`."""
    return "".join(
        (f"n{number}, steps{number}, " if split_name(name).steps else f"n{number}, ")
        + (f"l{number}, " if number in parts.looked_up else "")
        for number, name in enumerate(parts.facts)
    )


def _block(lines: Sequence[str], depth: int) -> str:
    """Join statements for a template, indented by `depth`; the template indents the first."""
    return ("\n" + " " * depth).join(lines) or "pass"


def _factory(source: str) -> Callable[[list[Any]], Any]:
    """Return the function that binds names and tables to the code."""
    namespace: dict[str, Any] = dict(_GLOBALS)
    exec(compile(source, "<rules>", "exec"), namespace)  # noqa: S102 -- the source is this module's own
    bind: Callable[[list[Any]], Any] = namespace["bind"]
    return bind


# Rules of one shape share their code.
_rows_factory: Final = functools.lru_cache(maxsize=256)(_factory)

# Each change of a rule makes another source of up to a megabyte, which rarely recurs.
_stream_factory: Final = functools.lru_cache(maxsize=4)(_factory)


def _fuse(rules: Fusible, *, begins: bool) -> Fused:
    """Compile rules into one function, which calls `begin` with each event if it `begins`."""
    parts = Abstraction(_Pattern)
    shapes: list[Shape] = []
    known: dict[NodeName, int | _Memory] = {}
    tables: dict[Path, _Memory] = {}
    for number, (condition, birth, cells) in enumerate(rules):
        memories = {}
        for place, (node, path) in enumerate(requirements_of(condition, birth).memories):
            cell, memory = cells[place], _Memory(number, place)
            held = known.setdefault(NodeName(node, path, birth), memory if cell is None else cell)
            memories[node, path] = held, Regime.SEEN, False
            tables.setdefault(path, memory)
        shapes.append(parts.shape(condition, birth, memories))
    late = [number for number, path in enumerate(parts.paths) if is_filtered(path)]

    # A fact that is compared as a number only once is often not compared at all.
    quantities = [fact for fact, uses in parts.quantities.items() if uses > 1]
    writer = EagerWriter(shapes, parts.constants, quantities, late, functools.partial(slot_lookup, parts))
    verdicts = [writer.verdict(shape) for shape in shapes]
    source = _stream_source(parts, writer, verdicts, begins=begins)
    sliced = [tables[path] for number, path in enumerate(parts.paths) if number in parts.sliced]
    return Fused(_stream_factory(source), parts, sliced)


# Detectors that take turns in a process often have equal rules.
_fused_few: Final = functools.lru_cache(maxsize=64)(_fuse)
_fused_many: Final = functools.lru_cache(maxsize=1)(_fuse)
