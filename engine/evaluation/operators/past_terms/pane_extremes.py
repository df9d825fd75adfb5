"""The least and the greatest numbers of the panes of a window."""

from bisect import bisect_left
from collections.abc import Iterable
from math import nan
from operator import itemgetter
from typing import Final

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

    def __init__(self, pane: int, number: float) -> None:
        self.minima = [(pane, number)]

    @property
    def pane(self) -> int:
        """The last pane."""
        return self.minima[-1][0]

    def panes(self) -> list[tuple[int, float]]:
        """Return the panes with their minima, oldest first."""
        return self.minima

    @classmethod
    def of(cls, panes: Iterable[tuple[int, float]]) -> "PaneMinima":
        """Return the record that has these panes."""
        made = cls(0, 0.0)
        made.minima = list(panes)
        return made

    def copy(self) -> "PaneMinima":
        """Return a copy that shares nothing that changes."""
        return PaneMinima.of(self.minima)

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
