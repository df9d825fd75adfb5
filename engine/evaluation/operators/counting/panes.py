"""Memories by panes of time, which take little memory for sums over a window."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import nan
from operator import itemgetter
from typing import Any, ClassVar, Final

from engine.evaluation.operators.interface import Constants, Found, Memory, Names, Triggers, Writing
from engine.evaluation.operators.memories import MemoryOfFact
from engine.evaluation.paths import Path
from engine.evaluation.stamps import LATEST
from engine.language.condition import Condition

PANES: Final = 256
"""The number of panes that cover a window."""


def pane_us(window_us: int) -> int:
    """Return the width of the panes of a window."""
    return max(1, -(-window_us // PANES))


_pane_of: Final = itemgetter(0)


class PaneSums:
    """The sums and counts of the numbers in each pane. Most slices have few panes, or one."""

    __slots__ = ("before", "count", "number", "older", "pane", "partial", "sum")

    def __init__(self, pane: int, number: float) -> None:
        self.pane = pane
        """The last pane."""
        # -0.0 becomes 0.0, as in a sum that begins with 0.0.
        self.sum = 0.0 + number
        self.count = 1
        """The count of the last pane."""
        self.older: list[tuple[int, float, int]] | None = None
        """The earlier panes, with their sums and counts, oldest first."""
        self.before = 0.0
        """The sum of the earlier panes."""
        self.number = 1
        """The count of all panes."""
        self.partial: tuple[int, float, int] | None = None
        """The last result without the oldest panes: the first pane that counted, `before` and `number`."""

    @property
    def older_count(self) -> int:
        """The number of panes before the last one."""
        return len(self.older or ())

    def panes(self) -> list[tuple[int, float, int]]:
        """Return all panes with their sums and counts, oldest first."""
        return [*(self.older or ()), (self.pane, self.sum, self.count)]

    def since(self, oldest: int) -> Iterator[tuple[int, float, int]]:
        """Yield the panes from a pane on."""
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
        """Return an independent copy."""
        copied = PaneSums(self.pane, 0.0)
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        copied.older = None if self.older is None else self.older[:]
        return copied

    def add(self, pane: int, number: float, oldest: int) -> int:
        """Add a number, and drop panes before the oldest that counts. Return the increase in panes."""
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
        """Return the sum and count of the panes that count, with one more number if given."""
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
    """Add panes in order, from 0.0, and their counts to a count. `sum` would round differently."""
    total = 0.0
    for _, part, counted in panes:
        total += part
        count += counted
    return total, count


class PaneMinima:
    """The minima of the panes, oldest first.

    Panes with a later, lower minimum are dropped, so minima ascend, and the first that counts is the least.
    """

    __slots__ = ("minima",)

    def __init__(self, minima: Iterable[tuple[int, float]]) -> None:
        self.minima = list(minima)

    @property
    def pane(self) -> int:
        """The last pane."""
        return self.minima[-1][0]

    @property
    def older_count(self) -> int:
        """The number of panes before the last one."""
        return len(self.minima) - 1

    def panes(self) -> list[tuple[int, float]]:
        """Return the panes with their minima, oldest first."""
        return self.minima

    def copy(self) -> "PaneMinima":
        """Return an independent copy."""
        return PaneMinima(self.minima)

    def add(self, pane: int, number: float, oldest: int) -> int:
        """Add a number, and drop useless panes. Return the increase in panes."""
        minima, before = self.minima, len(self.minima)
        while minima and minima[-1][1] >= number:
            minima.pop()
        if not minima or minima[-1][0] != pane:
            minima.append((pane, number))
        if minima[0][0] < oldest:
            del minima[: bisect_left(minima, oldest, key=_pane_of)]
        return len(minima) - before

    def least(self, oldest: int) -> float | None:
        """Return the least number that counts, or None if there is none."""
        minima = self.minima
        if minima[0][0] >= oldest:
            return minima[0][1]
        place = bisect_left(minima, oldest, key=_pane_of)
        return minima[place][1] if place < len(minima) else None


def total(entry: PaneSums | tuple[()], pane: int, number: float | None, oldest: int) -> float:
    """Return the sum over the panes that count, with the number of the current event, if any."""
    if entry:
        return entry.total(pane, number, oldest)[0]
    return 0.0 if number is None else 0.0 + number


def mean(entry: PaneSums | tuple[()], pane: int, number: float | None, oldest: int) -> float | None:
    """Return the mean of these numbers; None if there are none."""
    if not entry:
        return None if number is None else 0.0 + number
    found, count = entry.total(pane, number, oldest)
    return found / count if count else None


def least(entry: PaneMinima | tuple[()], _: int, number: float | None, oldest: int) -> float:
    """Return the least number that counts, with that of the current event, if any; NaN without any."""
    found = entry.least(oldest) if entry else None
    if found is None or (number is not None and number < found):
        return nan if number is None else number
    return found


@dataclass(frozen=True)
class OfPanes(Memory):
    """A record by the panes of a window. The outcome is a number, or None.

    Its sums cannot be split, so rules of different births do not share it.
    """

    is_record = True
    splits = False
    code_nodes = 3
    begun: ClassVar[str]
    """The record of one pane with a number, as code."""
    record_bytes: ClassVar[int]
    """The size of a record of one pane."""
    pane_bytes: ClassVar[int]
    """The size of each older pane."""
    window_us: int | None

    def write(self, to: Writing) -> list[str]:
        pane, oldest = places(self.window_us, to)
        more = f"more := entry.add({pane}, {to.outcome}, {oldest})"
        return [
            f"if {to.outcome} is not None:",
            f" if (entry := {to.entry}):",
            f"  if ({more}): {to.memory}.weigh(more * {self.pane_bytes})",
            " else:",
            *(f"  {line}" for line in to.put(self.begun.format(pane=pane, number=to.outcome))),
        ]

    def latest(self, entry: Any) -> int:  # noqa: ARG002 -- rules of other births have other records
        return LATEST

    def until_us(self, entry: Any, window_us: int) -> int:
        # The oldest pane counts as a whole.
        return (int(entry.pane) + 1) * pane_us(window_us) - 1 + window_us

    def length(self, entry: Any) -> int:
        return int(entry.older_count) + 1

    def bytes_of(self, entry: Any) -> int:
        return self.record_bytes + self.pane_bytes * int(entry.older_count)

    def bytes_max(self, keep: int) -> int:
        return self.record_bytes + self.pane_bytes * keep

    def copy(self, entry: Any) -> Any:
        return entry.copy()

    def parts(self, entry: Any) -> tuple[Collection[Any], ...]:
        return tuple(zip(*entry.panes(), strict=True))


@dataclass(frozen=True)
class PanesOfSums(OfPanes):
    """The sums of numbers over the panes of a window."""

    columns = ("integers", "doubles", "integers")
    begun = "PaneSums({pane}, {number})"
    record_bytes = 230
    pane_bytes = 150

    def entry_of(self, *parts: Sequence[Any]) -> PaneSums:
        return PaneSums.of(zip(*parts, strict=True))


@dataclass(frozen=True)
class PanesOfCounts(PanesOfSums):
    """The number of events in each pane at which inner was true, as sums of ones."""

    inner: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return (self.inner,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- the truth suffices
        return f"1.0 if {operands[0]} else None"

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        return triggers.true(self.inner, path)


@dataclass(frozen=True)
class Panes(MemoryOfFact, PanesOfSums):
    """The sums of a fact at the events at which `where` was true."""

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        return number_of_fact(self.fact, operands, names)


@dataclass(frozen=True)
class PanesOfMinima(MemoryOfFact, OfPanes):
    """The minima of a fact at the events at which `where` was true. For maxima, the numbers are negated."""

    columns = ("integers", "doubles")
    begun = "PaneMinima([({pane}, {number})])"
    record_bytes = 260
    pane_bytes = 130
    is_negated: bool = False

    def entry_of(self, *parts: Sequence[Any]) -> PaneMinima:
        return PaneMinima(zip(*parts, strict=True))

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        number = number_of_fact(self.fact, operands, names)
        return f"(None if (number := {number}) is None else -number)" if self.is_negated else number


def number_of_fact(name: str, operands: Sequence[str], names: Names) -> str:
    """Return the expression for a fact as a double; None if it is not a number, or the operand is false."""
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
    """Return the times at which panes, given in ascending order, leave the window."""
    if window_us is None:
        return ()
    width_us = pane_us(window_us)
    return ((pane + 1) * width_us - 1 + window_us for pane in panes)


def lookback_us(window_us: int | None) -> int | None:
    """Return how far back events can count. The oldest pane counts as a whole."""
    return None if window_us is None else window_us + pane_us(window_us)


def panes_kept(window_us: int | None) -> int:
    """Return how many panes are needed: those of the window, and a partly covered one at each end."""
    return 1 if window_us is None else PANES + 2
