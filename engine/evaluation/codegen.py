"""Generates Python source from shapes.

Updates of temporal nodes become statements, innermost first, so that no short-circuit skips them. Everything
else has no side effects and becomes an expression, where short-circuiting is safe. The source contains no
text of a caller: names and values are numbered constants.
"""

from typing import Any, Final, NamedTuple, assert_never

from engine.evaluation.ir import Junction, Memory, Negation, Predicate, Shape, Slice, updates
from engine.evaluation.state.columns import IN_PAGE, PAGE_BITS
from engine.evaluation.temporal import (
    HISTORICALLY,
    HISTORICALLY_FOR_STRONG,
    HISTORICALLY_FOR_WEAK,
    ONCE,
    ONCE_WITHIN,
    SINCE,
    SINCE_WITHIN,
    Regime,
)

_OPERATORS: Final = {
    operator.name: operator
    for operator in (
        ONCE,
        HISTORICALLY,
        SINCE,
        ONCE_WITHIN,
        HISTORICALLY_FOR_WEAK,
        HISTORICALLY_FOR_STRONG,
        SINCE_WITHIN,
    )
}


class Access(NamedTuple):
    """The code that accesses a memory: statements, except for `past`, which is the expression for its time.

    `temporal.py` describes the parts.
    """

    load: tuple[str, ...]
    past: str
    write: tuple[str, ...]
    clear: tuple[str, ...]
    keep: tuple[str, ...]


class Writer:
    """Writes the statements of shapes.

    In them, `f0` is a fact, `l0` its look-up, `k0` a key, `s0` a slot and `c0` a constant.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._variables = 0

    def verdict(self, shape: Shape) -> str:
        """Write the updates of a shape, and give an expression without side effects for its truth."""
        return self._expression(shape, self.lines)

    def _expression(self, shape: Shape, lines: list[str]) -> str:
        match shape:
            case Predicate(expression, facts, constants):
                numbers = {f"f{place}": f"f{number}" for place, number in enumerate(facts)}
                numbers |= {f"l{place}": f"l{number}" for place, number in enumerate(facts)}
                numbers |= {f"c{place}": f"c{number}" for place, number in enumerate(constants)}
                return expression.format_map(numbers)
            case Junction(word, members):
                return "(" + f" {word} ".join([self._expression(member, lines) for member in members]) + ")"
            case Negation(inner):
                return f"(not {self._expression(inner, lines)})"
            case Slice(path, inner):
                return self._slice(path, inner)
            case Memory(operands=()):
                return _read(shape)
            case Memory():
                return self._memory(shape, lines)
            case _:
                assert_never(shape)

    def _slice(self, path: int, inner: Shape) -> str:
        """Write the statements of a slice in a block that is skipped if the event has no key.

        Blocks follow one another and never nest: where the key of a path is None, so are those of longer
        paths.
        """
        lines: list[str] = []
        truth = self._expression(inner, lines)
        if not updates(inner):
            return f"(k{path} is not None and {truth})"
        verdict = self._variable()
        self.lines += [f"{verdict} = False", f"if k{path} is not None:"]
        self.lines += [f" {line}" for line in [*lines, f"{verdict} = {truth}"]]
        return verdict

    def _memory(self, memory: Memory, lines: list[str]) -> str:
        parts = {name: self._expression(operand, lines) for name, operand in memory.operands}
        access = self.access(memory)
        parts["edge"] = _edge(memory)
        verdict = parts["verdict"] = self._variable()
        parts["past"] = access.past
        lines += access.load
        blocks = {"{write}": access.write, "{clear}": access.clear, "{keep}": access.keep}
        for line in _OPERATORS[memory.operator].update:
            code = line.lstrip(" ")
            indent = line[: len(line) - len(code)]
            if code in blocks:
                lines += [indent + written for written in blocks[code]]
            else:
                lines.append(indent + code.format_map(parts))
        return verdict

    def access(self, memory: Memory) -> Access:
        """Give the code that accesses a memory."""
        if memory.path < 0:
            return _cell(memory)
        return _column(memory)

    def _variable(self) -> str:
        self._variables += 1
        return f"t{self._variables}"


class EagerWriter(Writer):
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


def _edge(memory: Memory) -> str:
    """Give the oldest time inside a memory's window, always later than NEVER; empty without a window."""
    if len(memory.constants) == 1:
        return ""
    edge = f"now - c{memory.constants[1]}"
    return f"max({edge}, NEVER + 1)" if memory.far else f"({edge})"


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
    truth = _OPERATORS[memory.operator].truth.format(since=since, past=past, edge=_edge(memory))
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
