"""Sums by panes, held against a list of all numbers, wherever the window's edge stands within a pane."""

from hypothesis import example, given, strategies

from engine.evaluation.operators.counting.panes import PaneSums, mean, total

# In quarters, so that no order of additions rounds.
NUMBERS = strategies.integers(-8, 8).map(lambda quarters: quarters / 4)
STEPS = strategies.tuples(
    strategies.integers(0, 3), NUMBERS, strategies.integers(0, 4), strategies.booleans()
)


@given(strategies.integers(1, 6), strategies.lists(STEPS, min_size=1, max_size=12))
# The oldest pane goes between two looks, and between a look and a number of the same pane.
@example(2, [(0, 1.0, 0, False), (2, 2.0, 1, False), (0, 4.0, 1, True), (0, 0.5, 1, False)])
def test_they_are_those_of_all_numbers_that_count(
    width: int, steps: list[tuple[int, float, int, bool]]
) -> None:
    entry: PaneSums | None = None
    numbers: list[tuple[int, float]] = []
    pane = oldest = 0
    for further, number, older, is_saved in steps:
        is_later = further > 0
        pane += further
        # Within a pane, the edge of the window moves from one pane to the next at most once.
        oldest = max(oldest, pane - width - (older == 0))
        if entry is not None:
            if is_saved:
                entry = PaneSums.of(entry.panes())
            copied = entry.copy()
            # Looks ahead see panes go, and change nothing.
            for edge in range(oldest, oldest + older):
                counted = [value for at, value in numbers if at >= edge]
                at = max(pane, edge)
                assert total(entry, at, None, edge) == sum(counted)
                assert total(entry, at, number, edge) == sum([*counted, number])
                assert mean(entry, at, None, edge) == (sum(counted) / len(counted) if counted else None)
                assert mean(entry, at, number, edge) == sum([*counted, number]) / (len(counted) + 1)
                assert [*entry.since(edge)] == [each for each in entry.panes() if each[0] >= edge]
            before = len(entry.panes())
            assert entry.add(pane, number, oldest) == len(entry.panes()) - before
            assert copied.panes() != entry.panes()
        else:
            entry = PaneSums(pane, number)
        numbers.append((pane, number))
        if is_later:
            assert all(at >= oldest for at, _, _ in entry.panes())
        expected = [value for at, value in numbers if at >= oldest]
        assert total(entry, pane, None, oldest) == sum(expected)
        assert mean(entry, pane, None, oldest) == sum(expected) / len(expected)
