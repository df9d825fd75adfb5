"""`sum` and `avg`: the sum and the mean of a fact, kept by panes of time, so that they take little memory."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.operators.count import some_counted
from engine.evaluation.operators.interface import Found, Memory, Names, Operator, Reading, Triggers, Writing
from engine.evaluation.paths import Path
from engine.evaluation.slices.stamps import time_of
from engine.language.condition import Avg, Condition, ScaledFact, Sum
from engine.language.operators import COMPARISONS

PANES: Final = 256
"""The panes that cover a window."""


def pane_us(window_us: int) -> int:
    """Return the width of the panes of a window."""
    return max(1, -(-window_us // PANES))


class PaneSums:
    """The sums of the numbers in each pane, and how many they are. Most slices have few panes, or one."""

    __slots__ = ("before", "count", "number", "older", "pane", "partial", "sum")

    def __init__(self, pane: int, number: float) -> None:
        self.pane = pane
        """The last pane."""
        # As in a sum that begins with 0.0, -0.0 becomes 0.0.
        self.sum = 0.0 + number
        self.count = 1
        """How many numbers the last pane has."""
        self.older: list[tuple[int, float, int]] | None = None
        """The panes before it, with their sums and counts, oldest first."""
        self.before = 0.0
        """The sum of those."""
        self.number = 1
        """How many numbers all panes have."""
        self.partial: tuple[int, float, int] | None = None
        """Of the last result without the oldest panes: the first that counted, `before` and `number`."""

    def add(self, pane: int, number: float, oldest: int) -> None:
        """Add a number, and drop the panes before the oldest that counts."""
        self.number += 1
        self.partial = None
        if pane == self.pane:
            self.sum += number
            self.count += 1
            return
        if self.older is None:
            self.older = []
        self.older.append((self.pane, self.sum, self.count))
        self.before += self.sum
        self.pane, self.sum, self.count = pane, 0.0 + number, 1
        if self.older[0][0] < oldest:
            del self.older[: bisect_left(self.older, (oldest,))]
            self.before, self.number = _together(self.older, 1)

    def total(self, pane: int, number: float | None, oldest: int) -> tuple[float, int]:
        """Return the sum and number of what counts, with one more number, if there is one, in the last pane."""
        if self.pane < oldest:
            return (0.0, 0) if number is None else (0.0 + number, 1)
        before, count = self.before, self.number
        if self.older and self.older[0][0] < oldest:
            if self.partial is None or self.partial[0] != oldest:
                self.partial = oldest, *_together(self.older[bisect_left(self.older, (oldest,)) :], self.count)
            _, before, count = self.partial
        if number is None:
            return before + self.sum, count
        if self.pane == pane:
            return before + (self.sum + number), count + 1
        return before + self.sum + (0.0 + number), count + 1


def _together(panes: Iterable[tuple[int, float, int]], count: int) -> tuple[float, int]:
    """Add panes in order, beginning with 0.0, and their counts to a count. `sum` would round less."""
    total = 0.0
    for _, part, counted in panes:
        total += part
        count += counted
    return total, count


@dataclass(frozen=True)
class Panes(Memory):
    """The sums of a fact over the panes of a window, at events at which `where` was true.

    The outcome is the number, or None if the event does not count. A sum cannot be split, so rules of different
    births do not share it.
    """

    is_record = True
    splits = False
    fact: str
    where: Condition | None
    window_us: int | None

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        fact = names.fact(self.fact)
        number = f"({fact} if type({fact}) is float else double({fact}))"
        return f"{number} if {operands[0]} else None" if operands else number

    def wakes(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])

    def write(self, to: Writing) -> list[str]:
        pane, oldest = places(self.window_us, to.now)
        return [
            f"if {to.outcome} is not None:",
            f" if (entry := {to.entry}): entry.add({pane}, {to.outcome}, {oldest})",
            " else:",
            *(f"  {line}" for line in to.put(f"PaneSums({pane}, {to.outcome})")),
        ]

    def is_alive(self, entry: Any, seen: int, floor: int) -> bool:  # noqa: ARG002 -- as for other memories
        if not entry or self.window_us is None:
            return bool(entry)
        return bool((entry.pane + 1) * pane_us(self.window_us) > time_of(floor))


def places(window_us: int | None, now: str) -> tuple[str, str]:
    """Return the expressions for the pane of an event, and for the oldest pane that counts."""
    if window_us is None:
        return "0", "0"
    width_us = pane_us(window_us)
    return f"{now} // {width_us}", f"({now} - {window_us}) // {width_us}"


def total(entry: PaneSums | tuple[()], pane: int, number: float | None, oldest: int) -> float:
    """Return the sum over the panes that count, with the number of the event now, if there is one."""
    if entry:
        return entry.total(pane, number, oldest)[0]
    return 0.0 if number is None else 0.0 + number


def mean(entry: PaneSums | tuple[()], pane: int, number: float | None, oldest: int) -> float | None:
    """Return the same divided by how many numbers they are, or None if there are none."""
    if not entry:
        return None if number is None else 0.0 + number
    found, count = entry.total(pane, number, oldest)
    return found / count if count else None


class SumOperator(Operator[Sum | Avg]):
    """Compares the sum with a number, or with a fact of the event times a number."""

    found = "total"

    def memory(self, node: Sum | Avg) -> Memory:
        return Panes(node.fact, node.where, node.window_us)

    def verdict(self, node: Sum | Avg, read: Reading) -> str:
        pane, oldest = places(node.window_us, read.now)
        found = f"{self.found}({read.entry}, {pane}, {read.outcome}, {oldest})"
        tests = []
        if isinstance(node.value, ScaledFact):
            factor = read.constant(float(node.value.factor))
            tests = [f"(limit := scaled({read.fact(node.value.fact)}, {factor})) is not None"]
            limit = "limit"
        else:
            limit = read.constant(node.value)
        if self.found == "mean":
            tests.append(f"(found := {found}) is not None")
            found = "found"
        return " and ".join([*tests, f"{found} {COMPARISONS[node.op]} {limit}"])

    def true_at(self, node: Sum | Avg, triggers: Triggers, path: Path) -> Found:
        memory = self.memory(node)
        if isinstance(node.value, ScaledFact):
            limited = triggers.present(node.value.fact)
            if self.found != "mean":
                return limited
            counted = triggers.union([triggers.holding(memory, path), memory.wakes(triggers, path)])
            return triggers.best([limited, counted])
        if self.found == "mean":
            return triggers.union([triggers.holding(memory, path), memory.wakes(triggers, path)])
        return some_counted(node.op, node.value, memory, triggers, path)

    def window_us(self, node: Sum | Avg) -> int | None:
        # The oldest pane counts whole.
        return None if node.window_us is None else node.window_us + pane_us(node.window_us)


class AvgOperator(SumOperator):
    """The same for the mean; false where no event counts."""

    found = "mean"
