"""The executable specification of panes, which approximate the windows of sums, means and counts of terms."""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from tests.reference_values import kind


@cache
def window_us(secs: float) -> int:
    """Return a window, read as its shortest decimal, to the nearest microsecond, half to even."""
    return round(Fraction(repr(secs)) * 1_000_000)


def pane_us(secs: float) -> int:
    """Return the width of the panes of a window, of which 256 cover it."""
    return max(1, -(-window_us(secs) // 256))


def double(value: Any) -> float | None:
    """Return a number as a double; None for other values, and beyond a double's range."""
    try:
        return float(value) if kind(value) == "number" else None
    except OverflowError:
        return None


def pane_numbers(
    history: Sequence[Any], true: Sequence[bool], secs: float | None, now_us: int
) -> list[tuple[int, Any]]:
    """Return the events that are true and in a pane that counts, each with its pane."""
    if secs is None:
        return [(0, event) for event, counts in zip(history, true, strict=True) if counts]
    oldest = (now_us - window_us(secs)) // pane_us(secs)
    panes = [event.time_us // pane_us(secs) for event in history]
    rows = zip(panes, history, true, strict=True)
    return [(pane, event) for pane, event, counts in rows if counts and pane >= oldest]


def added(numbers: Sequence[tuple[int, float]]) -> float:
    """Add numbers with their panes: the panes oldest first, the numbers of a pane in order."""
    panes: dict[int, float] = {}
    for pane, number in numbers:
        panes[pane] = panes.get(pane, 0.0) + number
    total = 0.0
    for _, pane in sorted(panes.items()):
        total += pane
    return total
