"""Compiles few rules into one function for many events, once for all detectors that have equal rules."""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from engine.evaluation.dispatch.compilation.event_access import fact_lookup, fact_lookups, slot_lookup
from engine.evaluation.dispatch.compilation.generated_code import block, factory, names_given, numbered
from engine.evaluation.dispatch.compilation.memory_access import EagerWriter
from engine.evaluation.memory import Regime
from engine.evaluation.paths import Path, fact_of, is_filtered
from engine.evaluation.plan.ir import Abstraction
from engine.evaluation.plan.requirements import requirements_of
from engine.evaluation.plan.shapes import Aggregate, Predicate, Shape, walk
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.slices import SETTLE_EVERY
from engine.language.condition import Condition


class HeldMemory(NamedTuple):
    """Stands for a memory of a rule in code that all detectors with equal rules share."""

    rule: int
    place: int


class HeldPattern(NamedTuple):
    """Stands for the test of a pattern in code that all detectors with equal rules share."""

    fact: str
    pattern: str


class Fused(NamedTuple):
    """Rules as one function, which each detector binds to its own memories and patterns."""

    bind: Callable[[list[Any]], Any]
    parts: Abstraction
    tables: list[HeldMemory]
    """For each table of keys, one of its memories."""


Fusible = tuple[tuple[Condition, int, tuple[int | None, ...]], ...]
"""The condition of each rule, its birth, and the cells of its memories; None for a memory that is in no cell.

Births are counted from 0, because rules are only compared with each other.
"""


_MANY: Final = """\
def bind(given):
 {given}combinations, cells, begin, relations_of = given
 def observe_many(events, detector, results):
  clock = NEVER if detector.clock_us is None else detector.clock_us
  latest, tick, state = detector.latest_us, detector.events_seen, detector.state
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
    results.append(combinations[fired])
  finally:
   {store}
   if clock != NEVER:
    detector.clock_us, detector.events_seen = clock, tick
 return observe_many
"""


def _stream_source(parts: Abstraction, writer: EagerWriter, verdicts: list[str], *, begins: bool) -> str:
    lookups = (["begin(fields, vars)"] if begins else []) + fact_lookups(
        parts.facts, writer.quantities, writer.lookups
    )
    lookups += writer.tests
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
    constants = numbered("c", range(len(parts.constants)))
    renewed = f"pause, tracking = tick - tick % {SETTLE_EVERY} + {SETTLE_EVERY}, state.tracking"
    settle = [
        "if tick >= pause or state.due:",
        " detector.settle(clock, tick)",
        f" {renewed}",
    ]
    return _MANY.format(
        given=constants + names_given(parts) + tables,
        load=block([renewed, *[f"m{cell} = cells[{cell}]" for cell in writer.cells]], 2),
        lookups=block(lookups, 4),
        lines=block(writer.lines, 4),
        fired=block(_fired(verdicts), 4),
        settle=block(settle if tables else [], 4),
        store=block([f"cells[{cell}] = m{cell}" for cell in writer.cells], 3),
    )


def _fired(verdicts: list[str]) -> list[str]:
    """Return the statements that set a bit for each rule that fires."""
    if not verdicts:
        return ["fired = 0"]
    first, *others = verdicts
    return [
        f"fired = 1 if {first} else 0",
        *(f"if {verdict}: fired |= {1 << place}" for place, verdict in enumerate(others, 1)),
    ]


# Each change of a rule makes another source of up to a megabyte, which rarely recurs.
_stream_factory: Final = functools.lru_cache(maxsize=4)(factory)


def _read_once(parts: Abstraction, shapes: Sequence[Shape]) -> list[int]:
    """Return the facts that only a single predicate reads. Often that predicate is not reached."""
    elsewhere = {parts.facts.index(fact_of(path[-1])) for path in parts.paths}
    reads: Counter[int] = Counter()
    for part in itertools.chain.from_iterable(map(walk, shapes)):
        if isinstance(part, Predicate):
            reads.update(set(part.facts))
        elif isinstance(part, Aggregate):
            elsewhere.update(part.facts)
    return [number for number, times in reads.items() if times == 1 and number not in elsewhere]


def _fuse(rules: Fusible, *, begins: bool) -> Fused:
    """Compile rules into one function, which calls `begin` with each event if it `begins`."""
    parts = Abstraction(HeldPattern)
    shapes: list[Shape] = []
    known: dict[NodeName, int | HeldMemory] = {}
    tables: dict[Path, HeldMemory] = {}
    for number, (condition, birth, cells) in enumerate(rules):
        memories = {}
        for place, (node, path) in enumerate(requirements_of(condition, birth).memories):
            cell, memory = cells[place], HeldMemory(number, place)
            held = known.setdefault(NodeName(node, path, birth), memory if cell is None else cell)
            memories[node, path] = held, Regime.SEEN, False
            tables.setdefault(path, memory)
        shapes.append(parts.shape(condition, birth, memories))
    late = {
        number: functools.partial(slot_lookup, parts, number)
        for number, path in enumerate(parts.paths)
        if is_filtered(path)
    }

    # A fact that is compared as a number only once is often not compared at all, so it gets no variable.
    quantities = [fact for fact, uses in parts.quantities.items() if uses > 1]
    once = {number: fact_lookup(number, parts.facts[number]) for number in _read_once(parts, shapes)}
    writer = EagerWriter(shapes, parts.constants, quantities, once, late)
    verdicts = [writer.verdict(shape) for shape in shapes]
    source = _stream_source(parts, writer, verdicts, begins=begins)
    sliced = [tables[path] for number, path in enumerate(parts.paths) if number in parts.sliced]
    return Fused(_stream_factory(source), parts, sliced)


# Detectors that a process activates one after another often have equal rules.
fuse_few: Final = functools.lru_cache(maxsize=64)(_fuse)
fuse_many: Final = functools.lru_cache(maxsize=1)(_fuse)
