"""Sums by panes, held against a list of all numbers, wherever the window's edge stands within a pane."""

import pytest
from hypothesis import example, given, strategies

from engine.evaluation.operators.counting.panes import (
    PaneSums,
    lookback_us,
    mean,
    oldest_pane,
    pane_us,
    panes_kept,
    panes_left_us,
    total,
)
from tests.reference_panes import added

# Some are lost beside others, so that the order of additions shows.
NUMBERS = strategies.sampled_from([0.1, 0.7, -3.0, 1e16, -1e16, -0.0])
STEPS = strategies.tuples(
    strategies.integers(0, 3), NUMBERS, strategies.integers(0, 4), strategies.booleans()
)


@given(strategies.integers(1, 6), strategies.lists(STEPS, min_size=1, max_size=12))
# A number comes between two looks ahead at which the oldest pane has gone.
@example(2, [(0, 1.0, 0, False), (2, 2.0, 2, False), (0, 4.0, 2, False), (0, 0.5, 2, False)])
# What counted from pane 1 on, 2 numbers and 2.0 before the last pane, is no answer for pane 2.
@example(9, [(0, 1.0, 1, False), (1, 2.0, 1, False), (1, 1.0, 1, False), (0, 1.0, 3, False)])
# A pane goes that has as many numbers, and as large a sum, as the oldest pane that is left has a place.
@example(1, [(0, 1.0, 1, False), (0, 1.0, 1, False), (3, 1.0, 1, False), (3, 1.0, 9, False)])
# Numbers of the last pane are added to each other first.
@example(9, [(0, 1e16, 1, False), (1, 1.0, 1, False), (0, 1.0, 3, False), (0, 1.0, 3, True)])
# The oldest pane that counts stays when the one before it goes.
@example(2, [(0, 1.0, 1, False), (1, 1.0, 1, False), (2, 1.0, 1, False)])
def test_they_are_those_of_all_numbers_that_count(
    width: int, steps: list[tuple[int, float, int, bool]]
) -> None:
    entry: PaneSums | None = None
    numbers: list[tuple[int, float]] = []
    pane = oldest = 0
    for later, number, ahead, is_saved in steps:
        pane += later
        # Within a pane, the edge of the window moves from one pane to the next at most once.
        oldest = max(oldest, pane - width - (ahead == 0))
        if entry is None:
            entry = PaneSums(pane, number)
        else:
            if is_saved:
                entry = PaneSums.of(entry.panes())
            copied = entry.copy()
            for edge in range(oldest, oldest + ahead):
                counted, now = [each for each in numbers if each[0] >= edge], max(pane, edge)
                assert total(entry, now, None, edge) == added(counted)
                assert total(entry, now, number, edge) == added([*counted, (now, number)])
                assert mean(entry, now, None, edge) == (added(counted) / len(counted) if counted else None)
                assert mean(entry, now, number, edge) == added([*counted, (now, number)]) / (len(counted) + 1)
                assert [*entry.since(edge)] == [each for each in entry.panes() if each[0] >= edge]
            before = entry.panes()
            assert entry.add(pane, number, oldest) == len(entry.panes()) - len(before)
            assert copied.panes() == before
            if later:
                assert all(at >= oldest for at, _, _ in entry.panes())
        numbers.append((pane, number))
        counted = [each for each in numbers if each[0] >= oldest]
        assert total(entry, pane, None, oldest) == added(counted)
        assert mean(entry, pane, None, oldest) == added(counted) / len(counted)


@pytest.mark.parametrize(
    ("window_us", "width_us"), [(0, 1), (1, 1), (256, 1), (257, 2), (512, 2), (513, 3), (256_000, 1_000)]
)
def test_at_most_256_panes_cover_a_window(window_us: int, width_us: int) -> None:
    assert pane_us(window_us) == width_us


@pytest.mark.parametrize("window_us", [0, 1, 255, 256, 257, 511, 512, 1_000, 256_000])
@pytest.mark.parametrize("now_us", [0, 1, 999, 123_456])
def test_a_pane_counts_until_it_leaves_the_window(window_us: int, now_us: int) -> None:
    pane = now_us // pane_us(window_us)
    (left_us,) = panes_left_us(window_us, [pane])
    assert oldest_pane(window_us, left_us) <= pane < oldest_pane(window_us, left_us + 1)
    assert now_us + window_us <= left_us <= now_us + (lookback_us(window_us) or 0)
    assert pane - oldest_pane(window_us, now_us) < panes_kept(window_us)


def test_without_a_window_there_is_one_pane_that_never_leaves() -> None:
    assert [*panes_left_us(None, [0])] == []
    assert lookback_us(None) is None
    assert (oldest_pane(None, 5), panes_kept(None)) == (0, 1)
