"""The numbers that `count`, `distinct`, `sum` and `avg` find, and how their verdicts change with time.

A record can hold 15 000 times or values, and a condition hundreds of records: all that is done with them is
linear.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from functools import reduce
from math import ceil, floor
from operator import add
from typing import Any, Final, NamedTuple, assert_never

from engine.evaluation.explanation.past.futures import LATEST_US, Future
from engine.evaluation.facts.values import double, scaled, slice_key_of
from engine.evaluation.kernel.selection.triggers import COMPARISONS, Comparison
from engine.evaluation.requirements import recorded_of
from engine.evaluation.times import NEVER, pane_us
from engine.language import condition as language

_ENDLESS_US: Final = 3 * LATEST_US
"""Stands for a missing window: later than LATEST_US, whatever time it is added to."""


class Past(NamedTuple):
    """The record of a node for the event's slice, before the event."""

    record: Any
    since_us: int
    """Only later times count."""


class Tally(NamedTuple):
    """What counts at an event: times, values or panes of numbers, oldest first."""

    untils_us: list[int]
    """The last time at which each counts."""
    totals: list[float]
    """The sum of each pane."""
    numbers: list[int]
    """How many numbers each pane has."""


def tally_of(node: Comparison, past: Past, now_us: int, value: Any, *, adds: bool) -> Tally:
    """Return what counts at an event. `value` is that of the node's fact, if it has one."""
    window_us = _ENDLESS_US if node.window_us is None else node.window_us
    since_us = past.since_us
    added = [now_us + window_us] if adds else []
    match node:
        case language.Count():
            times = [] if past.record is None else past.record
            return Tally([*[each + window_us for each in times if each > since_us], *added], [], [])
        case language.Distinct():
            seen = past.record or {}
            key = slice_key_of(value) if adds else None
            if key is None:
                added = []
            untils_us = [
                at_us + window_us for other, at_us in seen.items() if at_us > since_us and other != key
            ]
            return Tally(sorted(untils_us) + added, [], [])
        case language.Sum() | language.Avg():
            return _panes(node, past, now_us, double(value) if adds else None)
        case _:
            assert_never(node)


def _panes(node: language.Sum | language.Avg, past: Past, now_us: int, number: float | None) -> Tally:
    window_us = node.window_us
    width_us = 1 if window_us is None else pane_us(window_us)
    panes: list[int] = []
    totals: list[float] = []
    numbers: list[int] = []
    record = past.record
    if record is not None:
        # What is ignored has expired. Without a window, nothing is.
        ignores = past.since_us != NEVER
        first = bisect_right(record.panes, past.since_us // width_us) if ignores else 0
        panes, totals = list(record.panes[first:]), list(record.sums[first:])
        # Nothing reads the numbers of a sum; the panes only fill their place.
        numbers = list((record.counts or record.panes)[first:])
    if number is not None:
        pane = 0 if window_us is None else now_us // width_us
        if not (panes and panes[-1] == pane):
            panes.append(pane)
            totals.append(0.0)
            numbers.append(0)
        totals[-1] += number
        numbers[-1] += 1
    if window_us is None:
        return Tally([_ENDLESS_US] * len(panes), totals, numbers)
    return Tally([(pane + 1) * width_us + window_us - 1 for pane in panes], totals, numbers)


def _found(node: Comparison, tally: Tally, start: int) -> float | None:
    """Return the number that is compared if what is before `start` counts no more.

    None for the mean of nothing. Numbers are added in the order in which an evaluation adds them.
    """
    if isinstance(node, language.Count | language.Distinct):
        return len(tally.untils_us) - start
    total = reduce(add, tally.totals[start:], 0.0)
    if isinstance(node, language.Sum):
        return total
    count = sum(tally.numbers[start:])
    return total / count if count else None


def found_at(node: Comparison, tally: Tally, at_us: int) -> float | None:
    """Return the number that is compared at a time, no more of a count than the comparison needs."""
    found, recorded = _found(node, tally, bisect_left(tally.untils_us, at_us)), recorded_of(node)
    assert recorded is not None, node
    # The record of a count may hold more than that.
    return min(found, recorded.most) if found and recorded.most else found


def future_of(node: Comparison, tally: Tally, now_us: int, value_of: Callable[[str], Any]) -> Future:
    """Return the verdict now, and when it changes."""
    limit: float | None
    if isinstance(node.value, language.ScaledFact):
        limit = scaled(value_of(node.value.fact), float(node.value.factor))
    else:
        limit = node.value
    if limit is None:
        return Future(verdict=False)
    compare, untils_us = COMPARISONS[node.op], tally.untils_us

    def verdict_from(start: int) -> bool:
        found = _found(node, tally, start)
        return found is not None and compare(found, limit)

    start = bisect_left(untils_us, now_us)
    verdict = before = verdict_from(start)
    flips = []
    for place in _expiring(node, untils_us, start, limit):
        if verdict_from(place + 1) is not before:
            flips.append(untils_us[place])
            before = not before
    return Future(verdict, tuple(flips))


def _expiring(node: Comparison, untils_us: list[int], start: int, limit: float) -> list[int]:
    """Return the last place of each time at which the verdict may change, in order."""
    end = bisect_left(untils_us, LATEST_US)
    places: Iterable[int] = range(start, end)
    if isinstance(node, language.Count | language.Distinct):
        # The verdict changes only where the number falls to the limit, and below it.
        number = len(untils_us) - 1
        at_limit = number - min(max(limit, -1.0), number + 1.0)
        crossing = {max(start, ceil(at_limit)), max(start, floor(at_limit) + 1)}
        places = [place for place in crossing if place < end]
    return sorted({bisect_right(untils_us, untils_us[place]) - 1 for place in places})


def since_of(node: Comparison, tally: Tally, now_us: int) -> int | None:
    """Return a time since which the verdict has been the same, and perhaps longer.

    Nothing may have counted since the last entry. None if nothing counts, or if it is not known when
    something last did. The tally may include what has expired. The node compares with a number.
    """
    if not tally.untils_us or (node.window_us is None and isinstance(node, language.Sum | language.Avg)):
        return None
    window_us = _ENDLESS_US if node.window_us is None else node.window_us
    last_us = min(now_us, tally.untils_us[-1] - window_us)
    flips = future_of(node, tally, last_us, lambda _: None).flips
    return max([last_us, *(flip_us + 1 for flip_us in flips if flip_us < now_us)])
