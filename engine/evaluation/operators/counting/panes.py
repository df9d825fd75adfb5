"""Memories by panes of time: for what is added up over a window, they take little memory."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from engine.evaluation.operators.interface import Constants, Found, Memory, Names, Triggers, Writing
from engine.evaluation.paths import Path
from engine.evaluation.stamps import LATEST
from engine.language.condition import Condition

PANES: Final = 256
"""The panes that cover a window."""


def pane_us(window_us: int) -> int:
    """Return the width of the panes of a window."""
    return max(1, -(-window_us // PANES))


RECORD_BYTES: Final = 230
"""What the sum of one pane takes."""

PANE_BYTES: Final = 150
"""What each older pane takes."""


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

    def panes(self) -> list[tuple[int, float, int]]:
        """Return all panes with their sums and counts, oldest first."""
        return [*(self.older or ()), (self.pane, self.sum, self.count)]

    def since(self, oldest: int) -> Iterator[tuple[int, float, int]]:
        """Yield those that are not before a pane."""
        if self.older:
            yield from islice(self.older, bisect_left(self.older, (oldest,)), None)
        if self.pane >= oldest:
            yield self.pane, self.sum, self.count

    @classmethod
    def of(cls, panes: Iterable[tuple[int, float, int]]) -> "PaneSums":
        """Return the sums that have these panes."""
        *older, (pane, added, count) = panes
        sums = cls(pane, added)
        sums.count = count
        sums.older = older or None
        sums.before, sums.number = _together(older, count)
        return sums

    def copy(self) -> "PaneSums":
        """Return a copy that shares nothing that changes."""
        copied = PaneSums(self.pane, 0.0)
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        copied.older = None if self.older is None else self.older[:]
        return copied

    def add(self, pane: int, number: float, oldest: int) -> int:
        """Add a number, drop the panes before the oldest that counts; return how many panes were added."""
        self.number += 1
        self.partial = None
        if pane == self.pane:
            self.sum += number
            self.count += 1
            return 0
        if self.older is None:
            self.older = []
        self.older.append((self.pane, self.sum, self.count))
        self.before += self.sum
        self.pane, self.sum, self.count = pane, 0.0 + number, 1
        if self.older[0][0] >= oldest:
            return 1
        expired = bisect_left(self.older, (oldest,))
        del self.older[:expired]
        self.before, self.number = _together(self.older, 1)
        return 1 - expired

    def total(self, pane: int, number: float | None, oldest: int) -> tuple[float, int]:
        """Return the sum and number of what counts, with one more number if there is one."""
        if self.pane < oldest:
            return (0.0, 0) if number is None else (0.0 + number, 1)
        before, count = self.before, self.number
        if self.older and self.older[0][0] < oldest:
            if self.partial is None or self.partial[0] != oldest:
                self.partial = (
                    oldest,
                    *_together(self.older[bisect_left(self.older, (oldest,)) :], self.count),
                )
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


@dataclass(frozen=True)
class OfPanes(Memory):
    """A record by the panes of a window.

    What it adds up cannot be split, so rules of different births do not share it.
    """

    is_record = True
    splits = False
    window_us: int | None

    def latest(self, entry: Any) -> int:  # noqa: ARG002 -- rules of other births have other records
        return LATEST

    def until_us(self, entry: Any, window_us: int) -> int:
        # The oldest pane counts whole.
        return (int(entry.pane) + 1) * pane_us(window_us) - 1 + window_us


@dataclass(frozen=True)
class PanesOfSums(OfPanes):
    """The sums of numbers over the panes of a window. The outcome is the number, or None if there is none."""

    columns = ("integers", "doubles", "integers")

    def length(self, entry: PaneSums) -> int:
        return len(entry.panes())

    def bytes_of(self, entry: PaneSums) -> int:
        return RECORD_BYTES + PANE_BYTES * len(entry.older or ())

    def copy(self, entry: PaneSums) -> PaneSums:
        return entry.copy()

    def parts(self, entry: PaneSums) -> tuple[Collection[Any], ...]:
        panes, sums, counts = zip(*entry.panes(), strict=True)
        return panes, sums, counts

    def entry_of(self, *parts: Sequence[Any]) -> PaneSums:
        return PaneSums.of(zip(*parts, strict=True))

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + PANE_BYTES * keep

    def write(self, to: Writing) -> list[str]:
        pane, oldest = places(self.window_us, to)
        more = f"more := entry.add({pane}, {to.outcome}, {oldest})"
        return [
            f"if {to.outcome} is not None:",
            f" if (entry := {to.entry}):",
            f"  if ({more}): {to.memory}.weigh(more * {PANE_BYTES})",
            " else:",
            *(f"  {line}" for line in to.put(f"PaneSums({pane}, {to.outcome})")),
        ]


@dataclass(frozen=True)
class Panes(PanesOfSums):
    """The sums of a fact at the events at which `where` was true."""

    fact: str
    where: Condition | None

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        return number_of_fact(self.fact, operands, names)

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])


def number_of_fact(name: str, operands: Sequence[str], names: Names) -> str:
    """Return the expression for a fact as a double, None if it is none or `where`, its operand, is false."""
    fact = names.fact(name)
    number = f"({fact} if type({fact}) is float else double({fact}))"
    return f"{number} if {operands[0]} else None" if operands else number


def places(window_us: int | None, names: Constants) -> tuple[str, str]:
    """Return the expressions for the pane of an event, and for the oldest pane that counts."""
    if window_us is None:
        return "0", "0"
    width_us = names.constant(pane_us(window_us))
    return f"{names.now} // {width_us}", f"({names.now} - {names.constant(window_us)}) // {width_us}"


def oldest_pane(window_us: int | None, now_us: int) -> int:
    """Return the oldest pane that counts."""
    return 0 if window_us is None else (now_us - window_us) // pane_us(window_us)


def panes_left_us(window_us: int | None, panes: Iterable[int]) -> Iterable[int]:
    """Return when each pane leaves the window, given those of a record in ascending order."""
    if window_us is None:
        return ()
    width_us = pane_us(window_us)
    return ((pane + 1) * width_us - 1 + window_us for pane in panes)


def lookback_us(window_us: int | None) -> int | None:
    """Return how far back events can count. The oldest pane counts whole."""
    return None if window_us is None else window_us + pane_us(window_us)


def panes_kept(window_us: int | None) -> int:
    """Return how many panes are needed: those of the window, and one at either end that it covers in part."""
    return 1 if window_us is None else PANES + 2
