"""What counts of the past at an event, and when the verdict about it changes."""

import itertools
from array import array
from typing import Any

import pytest
from engine.evaluation.state.aggregates import panes

from engine.evaluation.explanation.past import tallies
from engine.evaluation.explanation.past.futures import LATEST_US, Future
from engine.evaluation.explanation.past.tallies import Past, Tally, found_at, future_of, since_of, tally_of
from engine.evaluation.kernel.selection.triggers import COMPARISONS, Comparison
from engine.evaluation.times import NEVER, pane_us
from engine.language.condition import Avg, Count, Distinct, ScaledFact, Sum
from tests.worlds.shared_histories import P

WINDOW_US = 1_000_000
PANE_US = pane_us(WINDOW_US)


def counted(past: Past, *, adds: bool, node: Comparison | None = None, value: Any = None) -> list[int]:
    tally = tally_of(node or Count(P, 1, "gte", 2), past, 40, value, adds=adds)
    assert tally[1:] == ([], [])
    return tally.untils_us


def test_of_a_count_the_times_after_those_that_are_ignored_count() -> None:
    past, none = Past([10, 20, 30], 10), Past(None, NEVER)
    assert counted(past, adds=False) == [WINDOW_US + 20, WINDOW_US + 30]
    assert counted(past, adds=True) == [WINDOW_US + 20, WINDOW_US + 30, WINDOW_US + 40]
    assert [counted(none, adds=adds) for adds in (False, True)] == [[], [WINDOW_US + 40]]


def test_of_values_each_counts_from_when_it_was_seen_last() -> None:
    node, past, none = (
        Distinct("t", None, 1, "gt", 1),
        Past({"b": 30, "a": 10, "c": 20}, 10),
        Past(None, NEVER),
    )
    for value, adds, expected in (
        ("b", False, [20, 30]),
        ("b", True, [20, 40]),
        ("d", True, [20, 30, 40]),
        (None, True, [20, 30]),
    ):
        untils_us = counted(past, adds=adds, node=node, value=value)
        assert untils_us == [WINDOW_US + time_us for time_us in expected]
    assert counted(none, adds=True, node=node, value="b") == [WINDOW_US + 40]


@pytest.mark.parametrize(
    ("node", "record"),
    [
        (Count(P, None, "gte", 1), [-LATEST_US]),
        (Distinct("t", None, None, "gte", 1), {"a": -LATEST_US}),
    ],
)
def test_without_a_window_even_the_earliest_time_counts_for_ever(node: Comparison, record: Any) -> None:
    tally = tally_of(node, Past(record, NEVER), 0, None, adds=False)
    assert future_of(node, tally, 0, lambda _: None) == Future(verdict=True)
    assert since_of(node, tally, 0) == -LATEST_US


def numbers(past: Past, node: Comparison, now_us: int, value: Any, *, adds: bool = True) -> Any:
    """Give the last pane of each, the sums and, for a mean, how many numbers there are."""
    untils_us, totals, counts = tally_of(node, past, now_us, value, adds=adds)
    last = [(until_us + 1 - WINDOW_US) // PANE_US - 1 for until_us in untils_us]
    assert untils_us == [(pane + 1) * PANE_US + WINDOW_US - 1 for pane in last]
    return (last, totals, counts) if isinstance(node, Avg) else (last, totals)


def test_of_numbers_the_panes_after_those_that_are_ignored_count() -> None:
    sums, counts = array("d", [1.0, 2.0]), array("q", [3, 4])
    mean = panes.PaneSums(array("q", [3, 5]), sums, counts)
    total = panes.PaneSums(array("q", [3, 5]), sums, None)
    avg, sum_ = Avg("t", None, 1, "gt", 1), Sum("t", None, 1, "gt", 1)
    now_us = 6 * PANE_US - 1
    for since_us, first in ((NEVER, 0), (3 * PANE_US - 1, 0), (3 * PANE_US, 1)):
        all_panes, all_sums, all_counts = [3, 5][first:], [1.0, 2.0][first:], [3, 4][first:]
        past = Past(mean, since_us)
        assert numbers(past, avg, now_us, 8, adds=False) == (all_panes, all_sums, all_counts)
        assert numbers(past, avg, now_us, "8") == (all_panes, all_sums, all_counts)
        assert numbers(past, avg, now_us, 8) == (all_panes, [*all_sums[:-1], 10.0], [*all_counts[:-1], 5])
        assert numbers(past, avg, now_us + 1, 8) == ([*all_panes, 6], [*all_sums, 8.0], [*all_counts, 1])
        assert numbers(Past(total, since_us), sum_, now_us, 8) == (all_panes, [*all_sums[:-1], 10.0])
        assert numbers(Past(total, since_us), sum_, now_us + 1, 8) == ([*all_panes, 6], [*all_sums, 8.0])
    assert numbers(Past(None, NEVER), avg, now_us, 8) == ([5], [8.0], [1])
    assert numbers(Past(None, NEVER), avg, now_us, None) == ([], [], [])
    assert list(sums) == [1.0, 2.0]
    assert list(counts) == [3, 4]


def test_without_a_window_all_numbers_are_in_one_pane_that_counts_for_ever() -> None:
    record = panes.PaneSums(array("q", [0]), array("d", [2.0]), array("q", [3]))
    node = Avg("t", None, None, "gt", 1)
    for past, sums, counts in ((Past(record, NEVER), [10.0], [4]), (Past(None, NEVER), [8.0], [1])):
        tally = tally_of(node, past, 5 * WINDOW_US, 8, adds=True)
        assert tally[1:] == (sums, counts)
        assert future_of(node, tally, LATEST_US, lambda _: None) == Future(verdict=True)
        assert since_of(node, tally, 0) is None


UNTILS_US = [3, 5, 5, 8]
TALLY = Tally(UNTILS_US, [1.0, -1.0, 3.0, 0.0], [1, 2, 1, 1])


def number_at(node: Comparison, time_us: int) -> float | None:
    """Give what is compared at a time, worked out from all that still counts."""
    left = [place for place, until_us in enumerate(UNTILS_US) if until_us >= time_us]
    if isinstance(node, Count | Distinct):
        return len(left)
    total = sum(TALLY.totals[place] for place in left)
    count = sum(TALLY.numbers[place] for place in left)
    return total if isinstance(node, Sum) else total / count if count else None


@pytest.mark.parametrize("op", COMPARISONS)
def test_a_verdict_changes_where_what_still_counts_changes_it(op: Any) -> None:
    limits = (0, 1, 2, 3, 4, 5)
    nodes = [
        *(node for limit in limits for node in (Count(P, 1, op, limit), Distinct("t", None, 1, op, limit))),
        *(make("t", None, 1, op, limit) for make in (Sum, Avg) for limit in (-1, 0, 1, 2, 3)),
        *(make("t", None, 1, op, ScaledFact("u", 0.5)) for make in (Sum, Avg)),
    ]
    for node, now_us in itertools.product(nodes, range(10)):
        limit = 1.5 if isinstance(node.value, ScaledFact) else node.value

        def verdict_at(time_us: int, node: Comparison = node, limit: float = limit) -> bool:
            found = number_at(node, time_us)
            return found is not None and COMPARISONS[node.op](found, limit)

        flips = tuple(time for time in range(now_us, 10) if verdict_at(time) is not verdict_at(time + 1))
        told = future_of(node, TALLY, now_us, {"u": 3}.get)
        assert told == Future(verdict_at(now_us), flips), (node, now_us)
        found = found_at(node, TALLY, now_us)
        if isinstance(node, Count | Distinct):
            assert found == min(len([each for each in UNTILS_US if each >= now_us]), most(node)), node
        else:
            assert found == number_at(node, now_us)


def most(node: Count | Distinct) -> int:
    """Give the most that a comparison needs to know of a count."""
    return max(1, node.value + (node.op not in {"gte", "lt"}))


def test_a_fact_that_is_missing_compares_with_nothing() -> None:
    node = Sum("t", None, 1, "gte", ScaledFact("u", 1))
    assert future_of(node, TALLY, 0, lambda _: None) == Future(verdict=False)


@pytest.mark.parametrize("node", [Count(P, 1, "gte", 1), Sum("t", None, 1, "gte", 1)])
def test_no_verdict_changes_after_the_latest_time(node: Comparison) -> None:
    tally = Tally([LATEST_US - 1, LATEST_US], [-1.0, 1.0], [])
    flips = (LATEST_US - 1,) if isinstance(node, Sum) else ()
    assert future_of(node, tally, 0, lambda _: None) == Future(not flips, flips)
    assert future_of(node, Tally([LATEST_US - 1], [1.0], []), 0, lambda _: None).flips == (LATEST_US - 1,)


def test_a_verdict_is_what_it_is_since_the_last_entry_or_since_it_changed() -> None:
    node = Count(P, 1, "gte", 2)
    tally = Tally([WINDOW_US + 10, WINDOW_US + 20], [], [])
    for now_us, since_us in (
        (15, 15),
        (20, 20),
        (WINDOW_US + 10, 20),
        (WINDOW_US + 11, WINDOW_US + 11),
        (WINDOW_US + 500, WINDOW_US + 11),
    ):
        assert since_of(node, tally, now_us) == since_us
    assert since_of(node, Tally([], [], []), 0) is None
    assert since_of(Sum("t", None, 1, "gte", 1), Tally([WINDOW_US + 10], [1.0], []), 20) == 10
    assert since_of(Sum("t", None, None, "gte", 1), Tally([WINDOW_US], [1.0], []), 20) is None


def test_of_a_count_only_the_times_around_the_limit_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def found(node: Comparison, tally: Tally, start: int) -> float:
        looked_at.append(start)
        return len(tally.untils_us) - start

    monkeypatch.setattr(tallies, "_found", found)
    told = future_of(Count(P, 1, "eq", 500), Tally([*range(1_000)], [], []), 0, lambda _: None)
    assert told == Future(verdict=False, flips=(499, 500))
    assert looked_at == [0, 500, 501]
