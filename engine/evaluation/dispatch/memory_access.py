"""The code by which generated functions read and write memories; it knows how the state keeps them."""

from typing import Any

from engine.evaluation.memory import Regime
from engine.evaluation.plan.codegen import OPERATORS, Access, Writer, edge_of
from engine.evaluation.plan.ir import Memory
from engine.evaluation.state.columns import IN_PAGE, PAGE_BITS


class RowWriter(Writer):
    """Writes for functions that evaluate one event for many rules of a shape."""

    def access(self, memory: Memory) -> Access:
        """Give the code that accesses a memory."""
        return _cell(memory) if memory.path < 0 else _column(memory)

    def read(self, memory: Memory) -> str:
        """Give an expression for the truth of a node, after its memory's update for the event."""
        return _read(memory)


class EagerWriter(RowWriter):
    """Writes for functions that evaluate many events for all rules. Cells are local variables: `m0`, `m1`."""

    def __init__(self, constants: list[Any]) -> None:
        super().__init__()
        self._constants = constants
        self.cells: set[int] = set()

    def access(self, memory: Memory) -> Access:
        """Give the code that accesses a memory that every event updates."""
        if memory.path >= 0:
            return _column(memory)
        number = self._constants[memory.constants[0]]
        self.cells.add(number)
        cell = f"m{number}"
        return Access((), cell, (f"{cell} = now",), (f"{cell} = NEVER",), ())


def _read(memory: Memory) -> str:
    """Give an expression for the truth of a node, after its memory's update for the event."""
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
        past = f"(read.get({slot}, NEVER) if (read := {store}.few) is not None else {entry})"
    truth = OPERATORS[memory.operator].truth.format(since=since, past=past, edge=edge_of(memory))
    return f"({truth})"


def _cell(memory: Memory) -> Access:
    cell = f"c{memory.constants[0]}"
    if memory.regime is Regime.STAMPED:
        return Access(
            (f"past = cells[{cell}] if ticks[{cell}] >= tick - 1 else whole.previous_us",),
            "past",
            ("pass",),
            (f"cells[{cell}] = NEVER", f"ticks[{cell}] = tick"),
            (f"cells[{cell}] = past", f"ticks[{cell}] = tick"),
        )
    opens, closes = ("begin", "end") if memory.regime is Regime.BEGUN else ("open", "close")
    return Access(
        (f"past = cells[{cell}]",),
        "past",
        ("if past == NEVER:", f" whole.{opens}({cell}, now)", "else:", f" cells[{cell}] = now"),
        ("if past != NEVER:", f" whole.{closes}({cell})"),
        (),
    )


def _column(memory: Memory) -> Access:
    column, path = f"c{memory.constants[0]}", memory.path
    slot, entry = f"s{path}", f"{column}.pages[s{path} >> {PAGE_BITS}][s{path} & {IN_PAGE}]"
    load = (
        f"if {slot} < 0:",
        " past = NEVER",
        "else:",
        f" few = {column}.few",
        f" past = few.get({slot}, NEVER) if few is not None else {entry}",
    )
    if memory.regime is Regime.STAMPED:
        return Access(
            (
                f"if {column}.ticks.get({slot}, {column}.whole_at) >= table{path}.previous_tick:",
                *(f" {line}" for line in load),
                "else:",
                f" past = table{path}.previous_us",
            ),
            "past",
            ("pass",),
            (f"{column}.keep({slot}, NEVER, tick)",),
            (f"{column}.keep({slot}, past, tick)",),
        )
    if memory.regime is Regime.BEGUN:
        return Access(
            (f"past = {column}.began({slot})",),
            "past",
            (f"{column}.begin({slot}, now)",),
            (f"{column}.end({slot}, tick)",),
            (),
        )
    return Access(
        load,
        "past",
        (
            "if past == NEVER:",
            f" {slot} = {column}.open(k{path}, {slot}, now, tick)",
            "elif few is not None:",
            f" few[{slot}] = now",
            "else:",
            f" {entry} = now",
        ),
        ("if past != NEVER:", f" {column}.close({slot})"),
        (),
    )
