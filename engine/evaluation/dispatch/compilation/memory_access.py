"""The code by which generated functions read and write memories; it knows how the state keeps them."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, Final

from engine.evaluation.memory import Regime
from engine.evaluation.plan.codegen import Access, Writer, verdict_of
from engine.evaluation.plan.shapes import Aggregate, Memory, Predicate, Shape, Test, walk
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS


class RowWriter(Writer):
    """Writes for functions that evaluate one event for many rules of a shape."""

    def access(self, memory: Memory) -> Access:
        """Return the code that accesses a memory."""
        return _cell(memory) if memory.path < 0 else _column(memory)

    def read(self, memory: Memory) -> str:
        """Return an expression for the truth of a node by its memory."""
        given, slot = f"c{memory.constants[0]}", f"s{memory.path}"
        store, since = (f"{given}.store", f"{given}.since_us") if memory.viewed else (given, "NEVER")
        if memory.path < 0:
            past = f"cells[{store}]"
            if memory.regime is Regime.STAMPED:
                past = f"({past} if ticks[{store}] >= tick else now)"
        elif memory.regime is Regime.STAMPED:
            past = f"{store}.stamped_at({slot}, now, tick)"
        elif memory.regime is Regime.BEGUN:
            past = f"{store}.began({slot})"
        else:
            entry = f"{store}.pages[{slot} >> {PAGE_BITS}][{slot} & {IN_PAGE}]"
            past = f"(few.get({slot}, NEVER) if (few := {store}.few) is not None else {entry})"
        starts = f"globals_.starts.after(0, {since})"
        if memory.path >= 0:
            starts = f"{store}.table.starts.after({slot}, {since})"
        return verdict_of(memory, past, since, starts)

    def apply_where(self, path: int, where: str | None) -> list[str]:  # noqa: ARG002 -- overridden
        """Return the test whether the event belongs to a slice of a path."""
        return [] if where is None else [where]


_SHORT: Final[frozenset[Test]] = frozenset(
    {
        "present",
        "boolean",
        "zero or one",
        "scalar",
        "among texts",
        "among numbers",
        "among many numbers",
        "texts between",
        "between",
        "at least",
        "at most",
        "above",
        "below",
    }
)
"""These tests are short, whatever the event has. Others may walk through a value, so they are made only where
they decide."""

TESTED_ONCE_FROM: Final = 3
"""A short test that is written at least this often is made once for each event."""


class EagerWriter(RowWriter):
    """Writes for functions that evaluate many events for all rules. Cells are local variables: `m0`, `m1`.

    `late` gives, for the expression of a path's `where`, the statements that look up its key. They are
    written where that key is first needed.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        constants: list[Any],
        quantities: Collection[int],
        lookups: Mapping[int, str],
        late: Mapping[int, Callable[[str | None], list[str]]],
    ) -> None:
        super().__init__(quantities, lookups)
        self._constants = constants
        self._late = dict(late)
        self.cells: set[int] = set()
        parts = [part for shape in shapes for part in walk(shape)]
        nodes = (part for part in parts if isinstance(part, Memory | Aggregate))
        self._readers = Counter(map(self._identity, nodes))
        tests = Counter([_tested(part, constants) for part in parts if isinstance(part, Predicate)])
        del tests[None]
        self._often = {test for test, times in tests.items() if times >= TESTED_ONCE_FROM}
        self._variables: dict[Hashable, str] = {}
        self.tests: list[str] = []
        """The statements for the tests that are written often: `p0`, `p1`. They come before all others."""

    def predicate(self, predicate: Predicate) -> str:
        """Return an expression for the truth of a predicate: a variable if it is written often."""
        test = _tested(predicate, self._constants)
        if test not in self._often:
            return super().predicate(predicate)
        if test not in self._variables:
            self._variables[test] = variable = f"p{len(self.tests)}"
            self.tests.append(f"{variable} = {super().predicate(predicate)}")
        return self._variables[test]

    def apply_where(self, path: int, where: str | None) -> list[str]:
        """Write the statements that look up the key of a path, unless they are written already."""
        if path in self._late:
            self._updates.add(-1, self._late.pop(path)(where))
        return []

    def _identity(self, node: Memory | Aggregate) -> Hashable:
        """Return the memory, which an event updates only once."""
        store: Hashable = self._constants[node.constants[0]]
        return store

    def is_stored(self, identity: Hashable, *, deferred: bool) -> bool:
        """Return whether a verdict is read more than once, or before its memory's update."""
        return deferred or self._readers[identity] > 1

    def access(self, memory: Memory) -> Access:
        """Return the code that accesses a memory that every event updates."""
        if memory.path >= 0:
            return _column(memory)
        number = self._constants[memory.constants[0]]
        self.cells.add(number)
        cell = f"m{number}"
        return Access(cell, (f"{cell} = now",), (f"{cell} = NEVER",), ("pass",))

    def read(self, memory: Memory) -> str:
        """Return an expression for the truth of a node by its memory."""
        if memory.path >= 0:
            return super().read(memory)
        return verdict_of(memory, f"m{self._constants[memory.constants[0]]}")


def _tested(predicate: Predicate, constants: Sequence[Any]) -> Hashable:
    """Return what is equal for predicates that always agree; None unless the test is short."""
    if predicate.test not in _SHORT:
        return None
    return predicate._replace(constants=()), tuple([constants[number] for number in predicate.constants])


def _cell(memory: Memory) -> Access:
    cell = f"c{memory.constants[0]}"
    past = f"cells[{cell}]"
    if memory.regime is Regime.STAMPED:
        return Access(
            past,
            ("pass",),
            (f"{past} = NEVER", f"ticks[{cell}] = tick"),
            (
                f"if ticks[{cell}] < tick - 1: {past} = globals_.previous_us",
                f"ticks[{cell}] = tick",
            ),
        )
    # A run triggers while it has not begun, any other memory while it holds a time.
    sets, clears = (
        ("set_idle", "set_triggering") if memory.regime is Regime.BEGUN else ("set_triggering", "set_idle")
    )
    return Access(
        past,
        (f"if {past} == NEVER:", f" globals_.{sets}({cell}, now)", "else:", f" {past} = now"),
        (f"if {past} != NEVER:", f" globals_.{clears}({cell}, NEVER)"),
        ("pass",),
    )


def _column(memory: Memory) -> Access:
    column, path = f"c{memory.constants[0]}", memory.path
    slot, entry = f"s{path}", f"{column}.pages[s{path} >> {PAGE_BITS}][s{path} & {IN_PAGE}]"
    past = f"(few.get({slot}, NEVER) if (few := {column}.few) is not None else {entry})"
    if memory.regime is Regime.STAMPED:
        complete = f"{column}.ticks.get({slot}, {column}.complete_at) >= table{path}.previous_tick"
        past = f"({past} if {complete} else table{path}.previous_us)"
        return Access(
            past,
            ("pass",),
            (f"{column}.keep({slot}, NEVER, tick)",),
            (f"{column}.keep({slot}, {past}, tick)",),
        )
    if memory.regime is Regime.BEGUN:
        return Access(
            f"{column}.began({slot})",
            (f"{column}.begin({slot}, now)",),
            (f"{column}.end({slot}, tick)",),
            ("pass",),
        )
    holds = f"({slot} in few if (few := {column}.few) is not None else {entry} != NEVER)"
    return Access(
        past,
        (
            f"if not {holds}:",
            f" {slot} = {column}.open(k{path}, {slot}, now, tick)",
            "elif few is not None:",
            f" few[{slot}] = now",
            "else:",
            f" {entry} = now",
        ),
        (f"if {holds}:", f" {column}.close({slot})"),
        ("pass",),
    )
