"""`min` and `max`: the least and the greatest value of a fact."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import nan
from operator import itemgetter
from typing import Any, Final

from engine.evaluation.operators.counting.panes import OfPanes, number_of_fact, places
from engine.evaluation.operators.interface import Found, Memory, Names, Triggers, Writing
from engine.evaluation.operators.past_terms.aggregate import OfSome
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import observed_if
from engine.evaluation.paths import Path
from engine.language.condition import Condition
from engine.language.terms import MaxTerm, MinTerm

RECORD_BYTES: Final = 260
"""What one pane takes, with the record."""

PANE_BYTES: Final = 130
"""What each further pane takes."""

_pane_of: Final = itemgetter(0)


class PaneMinima:
    """The minima of the panes, oldest first.

    Only those are kept that no later pane undercuts, so they ascend, and the first that counts is the least.
    """

    __slots__ = ("minima",)

    def __init__(self, minima: Iterable[tuple[int, float]]) -> None:
        self.minima = list(minima)

    @property
    def pane(self) -> int:
        """The last pane."""
        return self.minima[-1][0]

    def panes(self) -> list[tuple[int, float]]:
        """Return the panes with their minima, oldest first."""
        return self.minima

    def copy(self) -> "PaneMinima":
        """Return a copy that shares nothing that changes."""
        return PaneMinima(self.minima)

    def add(self, pane: int, number: float, oldest: int) -> int:
        """Add a number, drop what is not needed any more; return how many panes were added."""
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


def least(entry: PaneMinima | tuple[()], _: int, number: float | None, oldest: int) -> float:
    """Return the least number that counts, with that of the event now, if there is one; NaN without any."""
    found = entry.least(oldest) if entry else None
    if found is None or (number is not None and number < found):
        return nan if number is None else number
    return found


@dataclass(frozen=True)
class PanesOfMinima(OfPanes):
    """The minima of a fact over the panes of a window, at events at which `where` was true.

    The outcome is the number, or None if there is none. For maxima, it is the number negated.
    """

    columns = ("integers", "doubles")
    fact: str
    where: Condition | None
    is_negated: bool = False

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        number = number_of_fact(self.fact, operands, names)
        return f"(None if (number := {number}) is None else -number)" if self.is_negated else number

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])

    def write(self, to: Writing) -> list[str]:
        pane, oldest = places(self.window_us, to)
        more = f"more := entry.add({pane}, {to.outcome}, {oldest})"
        return [
            f"if {to.outcome} is not None:",
            f" if (entry := {to.entry}):",
            f"  if ({more}): {to.memory}.weigh(more * {PANE_BYTES})",
            " else:",
            *(f"  {line}" for line in to.put(f"PaneMinima([({pane}, {to.outcome})])")),
        ]

    def length(self, entry: PaneMinima) -> int:
        return len(entry.minima)

    def bytes_of(self, entry: PaneMinima) -> int:
        return RECORD_BYTES + PANE_BYTES * (len(entry.minima) - 1)

    def copy(self, entry: PaneMinima) -> PaneMinima:
        return entry.copy()

    def parts(self, entry: PaneMinima) -> tuple[Collection[Any], ...]:
        panes, minima = zip(*entry.minima, strict=True)
        return panes, minima

    def entry_of(self, *parts: Sequence[Any]) -> PaneMinima:
        return PaneMinima(zip(*parts, strict=True))

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + PANE_BYTES * keep


@values(MinTerm)
class MinOperator(OfSome[MinTerm]):
    """The least."""

    calls = (PaneMinima, least)

    def memory(self, term: MinTerm) -> Memory:
        return PanesOfMinima(term.window_us, term.fact, observed_if(term.where))

    def computed(self, term: MinTerm, arguments: str) -> str:  # noqa: ARG002 -- all are computed so
        return f"least({arguments})"


@values(MaxTerm)
class MaxOperator(OfSome[MaxTerm]):
    """The greatest: the negated least of the negated."""

    calls = (PaneMinima, least)

    def memory(self, term: MaxTerm) -> Memory:
        return PanesOfMinima(term.window_us, term.fact, observed_if(term.where), is_negated=True)

    def computed(self, term: MaxTerm, arguments: str) -> str:  # noqa: ARG002 -- all are computed so
        return f"-least({arguments})"
