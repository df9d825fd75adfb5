"""What a comparison with a number over the past finds at an event, and how its verdict changes with time."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, assert_never

from engine.evaluation.explanation.past.futures import LATEST_US, Future
from engine.evaluation.facts.values import double, scaled, slice_key_of
from engine.evaluation.memory import pane_us
from engine.evaluation.plan.requirements import recorded_of
from engine.evaluation.plan.triggers import COMPARISONS, Comparison
from engine.evaluation.state.aggregates.panes import Sum
from engine.language import condition as language


class Entry(NamedTuple):
    """What counts as one: an event, a value, or a pane of numbers. The latest entries come last."""

    what: Any
    until_us: int
    """The last time at which it counts."""
    total: float = 0.0
    numbers: int = 1


class Past(NamedTuple):
    """The record of a node for the event's slice, before the event."""

    record: Any
    since_us: int
    """Only later times count."""


def entries_of(node: Comparison, past: Past, now_us: int, value: Any, *, adds: bool) -> list[Entry]:
    """Return what counts at an event, oldest first. `value` is that of the node's fact, if it has one."""
    window_us = LATEST_US * 3 if node.window_us is None else node.window_us
    match node:
        case language.Count():
            times = [] if past.record is None else [each for each in past.record if each > past.since_us]
            return [Entry(None, each + window_us) for each in [*times, *([now_us] if adds else [])]]
        case language.Distinct():
            seen = dict(past.record or {})
            key = slice_key_of(value)
            if adds and key is not None:
                seen.pop(key, None)
                seen[key] = now_us
            return [Entry(each, at_us + window_us) for each, at_us in seen.items() if at_us > past.since_us]
        case language.Sum() | language.Avg():
            return _panes(node, past.record, now_us, double(value) if adds else None)
        case _:
            assert_never(node)


def _panes(
    node: language.Sum | language.Avg, record: Sum | None, now_us: int, number: float | None
) -> list[Entry]:
    window_us = node.window_us
    width_us = 0 if window_us is None else pane_us(window_us)

    def entry(pane: int, total: float, count: int) -> Entry:
        until_us = LATEST_US * 3 if window_us is None else (pane + 1) * width_us + window_us - 1
        return Entry(pane, until_us, total, count)

    panes: list[Entry] = []
    if record is not None:
        counts = record.counts or [1] * len(record.panes)
        panes = list(map(entry, record.panes, record.sums, counts))
    if number is not None:
        pane = 0 if window_us is None else now_us // width_us
        if panes and panes[-1].what == pane:
            last = panes.pop()
            panes.append(entry(pane, last.total + number, last.numbers + 1))
        else:
            panes.append(entry(pane, 0.0 + number, 1))
    return panes


def found_at(node: Comparison, entries: Sequence[Entry], at_us: int) -> float | None:
    """Return the number that is compared at a time, or None for the mean of nothing."""
    counting = [entry for entry in entries if entry.until_us >= at_us]
    if isinstance(node, language.Count | language.Distinct):
        return len(counting)
    total = 0.0
    for entry in counting:
        total += entry.total
    if isinstance(node, language.Sum):
        return total
    return total / sum(entry.numbers for entry in counting) if counting else None


def told_at(node: Comparison, entries: Sequence[Entry], at_us: int) -> float | None:
    """Return the number that is compared at a time, no more of a count than the comparison needs."""
    found, recorded = found_at(node, entries, at_us), recorded_of(node)
    if found is None or recorded is None or not recorded.most:
        return found
    # The record may hold more than that.
    return min(found, recorded.most)


def future_of(
    node: Comparison, entries: Sequence[Entry], now_us: int, value_of: Callable[[str], Any]
) -> Future:
    """Return the verdict now, and when it changes."""
    limit: float | None
    if isinstance(node.value, language.ScaledFact):
        limit = scaled(value_of(node.value.fact), float(node.value.factor))
    else:
        limit = node.value

    def verdict_at(at_us: int) -> bool:
        found = found_at(node, entries, at_us)
        return found is not None and limit is not None and COMPARISONS[node.op](found, limit)

    verdict = before = verdict_at(now_us)
    flips = []
    for until_us in sorted({entry.until_us for entry in entries if now_us <= entry.until_us < LATEST_US}):
        after = verdict_at(until_us + 1)
        if after is not before:
            flips.append(until_us)
            before = after
    return Future(verdict, tuple(flips))


def since_of(node: Comparison, entries: Sequence[Entry], now_us: int) -> int | None:
    """Return since when the verdict is what it is now, at least, if nothing has counted since the last entry.

    None if nothing counts, or if it is not known when it last did. `entries` may include expired ones. The
    node compares with a number.
    """
    if not entries or (node.window_us is None and isinstance(node, language.Sum | language.Avg)):
        return None
    window_us = LATEST_US * 3 if node.window_us is None else node.window_us
    last_us = min(now_us, max(entry.until_us for entry in entries) - window_us)
    flips = future_of(node, entries, last_us, lambda _: None).flips
    return max([last_us, *(flip_us + 1 for flip_us in flips if flip_us < now_us)])
