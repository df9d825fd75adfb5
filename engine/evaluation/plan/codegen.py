"""Generates Python source from shapes.

Updates of temporal nodes become statements, innermost first, so that no short-circuit skips them. Everything
else has no side effects and becomes an expression, where short-circuiting is safe. The source contains no
text of a caller: names and values are numbered constants.
"""

from abc import ABC, abstractmethod
from typing import Final, NamedTuple, assert_never

from engine.evaluation.plan.ir import Junction, Memory, Negation, Predicate, Shape, Slice, updates
from engine.evaluation.plan.temporal import (
    HISTORICALLY,
    HISTORICALLY_FOR_STRONG,
    HISTORICALLY_FOR_WEAK,
    ONCE,
    ONCE_WITHIN,
    SINCE,
    SINCE_WITHIN,
)

OPERATORS: Final = {
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


class Writer(ABC):
    """Writes the statements of shapes; subclasses know how memories are kept.

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
                return self.read(shape)
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
        parts["edge"] = edge_of(memory)
        verdict = parts["verdict"] = self._variable()
        parts["past"] = access.past
        lines += access.load
        blocks = {"{write}": access.write, "{clear}": access.clear, "{keep}": access.keep}
        for line in OPERATORS[memory.operator].update:
            code = line.lstrip(" ")
            indent = line[: len(line) - len(code)]
            if code in blocks:
                lines += [indent + written for written in blocks[code]]
            else:
                lines.append(indent + code.format_map(parts))
        return verdict

    @abstractmethod
    def access(self, memory: Memory) -> Access:
        """Give the code that accesses a memory."""

    @abstractmethod
    def read(self, memory: Memory) -> str:
        """Give an expression for the truth of a node, after its memory's update for the event."""

    def _variable(self) -> str:
        self._variables += 1
        return f"t{self._variables}"


def edge_of(memory: Memory) -> str:
    """Give the oldest time inside a memory's window, always later than NEVER; empty without a window."""
    if len(memory.constants) == 1:
        return ""
    edge = f"now - c{memory.constants[1]}"
    return f"max({edge}, NEVER + 1)" if memory.far else f"({edge})"
