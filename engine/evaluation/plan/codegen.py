"""Generates Python source from shapes.

Updates of temporal nodes become statements, innermost first, so that no short-circuit skips them; deferred
updates come last. Everything else has no side effects and becomes an expression, where short-circuiting is
safe. The source contains no text of a caller: names and values are numbered constants.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import NamedTuple, assert_never

from engine.evaluation.plan.requirements import OPERATORS
from engine.evaluation.plan.shapes import Junction, Memory, Negation, Predicate, Shape, Slice, Tally


class Access(NamedTuple):
    """The code that accesses a memory: statements, except for `past`, which is the expression for its time.

    `temporal.py` describes the parts.
    """

    past: str
    write: tuple[str, ...]
    clear: tuple[str, ...]
    keep: tuple[str, ...]


class Block:
    """Statements, each of which is skipped if the event has no key of its path."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._path = -1

    def add(self, path: int, lines: Iterable[str]) -> None:
        """Add statements for a path, -1 for every event."""
        if path < 0:
            self.lines += lines
        else:
            if path != self._path:
                self.lines.append(f"if k{path} is not None:")
            self.lines += [f" {line}" for line in lines]
        self._path = path


class Writer(ABC):
    """Writes the statements of shapes; subclasses know how memories are kept.

    In them, `f0` is a fact, `q0` the same if it is a number, `l0` its look-up, `k0` a key, `s0` a slot and
    `c0` a constant.
    """

    def __init__(self, quantities: Collection[int], lookups: Mapping[int, str]) -> None:
        self.quantities = quantities
        """The facts that have a variable `q0`."""
        self.lookups = lookups
        """For each fact that has no variable before it is read, the expression that looks it up."""
        self._updates = Block()
        self._deferred = Block()
        self._verdicts: dict[Hashable, str] = {}
        """The verdict of each node whose update is written, by what `_identity` gives."""

    @property
    def lines(self) -> list[str]:
        """The statements."""
        return [*self._updates.lines, *self._deferred.lines]

    def verdict(self, shape: Shape) -> str:
        """Write the updates of a shape, and give an expression without side effects for its truth."""
        match shape:
            case Predicate(expression, facts, constants):
                names = _numbers(facts, constants)
                for place, number in enumerate(facts):
                    names |= {f"q{place}": self._quantity(number), f"x{place}": self._number(number)}
                return self._looked_up(facts, expression.format_map(names))
            case Junction(word, members):
                return "(" + f" {word} ".join([self.verdict(member) for member in members]) + ")"
            case Negation(inner):
                return f"(not {self.verdict(inner)})"
            case Slice():
                return self._slice(shape)
            case Memory(operands=()):
                return self.read(shape)
            case Tally(added=None):
                return self._truth(shape)
            case Memory() | Tally():
                return self._updated(shape)
            case _:
                assert_never(shape)

    def _quantity(self, number: int) -> str:
        return f"q{number}" if number in self.quantities else f"({quantity_of(number)})"

    def _number(self, number: int) -> str:
        return f"q{number}" if number in self.quantities else f"({_number_of(number)})"

    def _looked_up(self, facts: Iterable[int], text: str) -> str:
        """Have an expression look up the facts that no other expression reads."""
        for number in set(facts) & self.lookups.keys():
            text = re.sub(rf"\bf{number}\b", f"(f{number} := {self.lookups[number]})", text, count=1)
        return text

    def _slice(self, piece: Slice) -> str:
        """Return the truth of a slice. What it needs is defined only if the event has a key."""
        where = None if piece.where is None else self.verdict(piece.where)
        tests = [f"k{piece.path} is not None", *self.turn(piece.path, where)]
        return f"({' and '.join([*tests, self.verdict(piece.inner)])})"

    def _updated(self, node: Memory | Tally) -> str:
        """Write the update of a node, unless it is written already, and give its verdict."""
        identity = self._identity(node)
        if identity is not None and identity in self._verdicts:
            return self._verdicts[identity]
        if isinstance(node, Tally):
            self._tally(node)
            verdict, deferred = self._truth(node), False
        else:
            deferred = self._memory(node)
            verdict = self.read(node)
        if self.is_stored(identity, deferred=deferred):
            variable = f"t{len(self._verdicts)}"
            self._updates.add(node.path, [f"{variable} = {verdict}"])
            verdict = variable
        self._verdicts[identity] = verdict
        return verdict

    def _memory(self, memory: Memory) -> bool:
        """Write the update of a memory, and tell whether it is deferred."""
        parts = {name: self.verdict(operand) for name, operand in memory.operands}
        access = self.access(memory)
        operator = OPERATORS[memory.operator]
        parts["past"] = access.past
        blocks = {"{write}": access.write, "{clear}": access.clear, "{keep}": access.keep}
        lines = []
        for line in operator.update:
            code = line.lstrip(" ")
            indent = line[: len(line) - len(code)]
            if code in blocks:
                lines += [indent + written for written in blocks[code]]
            else:
                lines.append(indent + code.format_map(parts))
        (self._deferred if operator.deferred else self._updates).add(memory.path, lines)
        return operator.deferred

    def _tally(self, tally: Tally) -> None:
        assert tally.added is not None, "the records are updated"
        added = self.verdict(tally.added)
        store, slot = f"c{tally.constants[0]}", f"s{tally.path}" if tally.path >= 0 else "0"
        key = f"k{tally.path}" if tally.path >= 0 else "None"
        add = tally.add.format_map(
            {
                "store": store,
                "at": f"{key}, {slot}, now, tick",
                **_numbers(tally.facts, tally.constants),
            }
        )
        add = f"{slot} = {add}" if tally.path >= 0 else add
        self._updates.add(tally.path, [f"if {added}: {add}"])

    def _truth(self, tally: Tally) -> str:
        """Return an expression for the truth of a tally, after the update for the event."""
        given = f"c{tally.constants[0]}"
        edge = f"now - c{tally.constants[1]}" if tally.windowed else ""
        parts = {
            "store": f"{given}.store" if tally.viewed else given,
            "slot": f"s{tally.path}" if tally.path >= 0 else "0",
            "since": f"{given}.since_us" if tally.viewed else "NEVER",
            "edge": f"max({edge}, NEVER + 1)" if tally.far else f"({edge})",
        }
        return f"({tally.truth.format_map(parts | _numbers(tally.facts, tally.constants))})"

    @abstractmethod
    def access(self, memory: Memory) -> Access:
        """Return the code that accesses a memory."""

    @abstractmethod
    def read(self, memory: Memory) -> str:
        """Return an expression for the truth of a node by its memory."""

    @abstractmethod
    def turn(self, path: int, where: str | None) -> list[str]:
        """Have the key of a path be None if it has a `where` that is false, or give the test for that."""

    def is_stored(self, identity: Hashable, *, deferred: bool) -> bool:  # noqa: ARG002 -- overridden
        """Return whether a verdict becomes a variable: after its node's update, unless that is `deferred`."""
        return False

    def _identity(self, node: Memory | Tally) -> Hashable:  # noqa: ARG002 -- overridden
        """Return what is equal for nodes with one memory; None if no memory is written twice."""
        return None


def quantity_of(number: int) -> str:
    """Return the expression for a fact as a number: NaN, for which no comparison is true, if it is none.

    An integer beyond the doubles is beyond every range.
    """
    fact = f"f{number}"
    beyond = f"type({fact}) is not int or not LEAST <= {fact} <= MOST"
    return f"NAN if type({fact}) is not float and ({beyond}) else {fact}"


def _number_of(number: int) -> str:
    """Return the same for a fact that is compared with both ends of a range, which are doubles."""
    fact = f"f{number}"
    return f"NAN if type({fact}) is not int and type({fact}) is not float else {fact}"


def _numbers(facts: Iterable[int], constants: Iterable[int]) -> dict[str, str]:
    """Return the variables that take the places of facts, look-ups and constants."""
    numbers = {f"f{place}": f"f{number}" for place, number in enumerate(facts)}
    numbers |= {f"l{place}": f"l{number}" for place, number in enumerate(facts)}
    return numbers | {f"c{place}": f"c{number}" for place, number in enumerate(constants)}


def edge_of(memory: Memory) -> str:
    """Return the oldest time inside a memory's window, always later than NEVER; empty without a window."""
    if len(memory.constants) == 1:
        return ""
    edge = f"now - c{memory.constants[1]}"
    return f"max({edge}, NEVER + 1)" if memory.far else f"({edge})"
