"""What is counted: which events and values, what is kept of them, and for how long they count."""

import random

from engine import Detector
from engine.evaluation.operators.counting.distinct import nth_latest
from engine.evaluation.operators.counting.panes import PaneSums, mean, pane_us, total


def detector(*rules: str) -> Detector:
    made = Detector()
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def test_a_record_keeps_little_more_than_a_comparison_needs() -> None:
    """A list of times may be longer, so that it is not moved at each event; a short one by two."""
    rules = {
        "count(a == 1) within 1h >= 3": (3, 5),
        "per k count(a == 1) >= 4": (4, 6),
        "per k count(a == 1) > 1000": (1_001, 1_255),
        "distinct(n) >= 3": (3, 3),
    }
    for rule, (needed, most) in rules.items():
        made = detector(rule)
        (slices,) = made.histories.slices.values()
        lengths = set()
        for number in range(5_000):
            made.evaluate({"a": 1, "k": 1, "n": number}, number)
            ((_, entry),) = slices.held_in(slices.find(1 if slices.path else ()) or [])
            lengths.add(len(entry))
        assert (min(lengths - set(range(needed))), max(lengths)) == (needed, most), rule


def test_the_nth_latest_of_other_values_is_found_from_either_end() -> None:
    drawn = random.Random(1)
    for length in (0, 1, 2, 7, 30):
        entry = {f"v{number}": 10 * number for number in drawn.sample(range(100), length)}
        entry = dict(sorted(entry.items(), key=lambda each: each[1]))
        for current in (None, "other", *list(entry)[:2], *list(entry)[-1:]):
            latest = [stamp for value, stamp in reversed(entry.items()) if value != current]
            found = [nth_latest(entry or (), n, current) for n in range(1, length + 2)]
            assert found == [latest[n - 1] if n <= len(latest) else None for n in range(1, length + 2)]


WINDOW_US = 256_000


def test_sums_by_panes_are_those_of_all_numbers_in_the_panes_that_count() -> None:
    drawn, width_us = random.Random(2), pane_us(WINDOW_US)
    assert width_us == 1_000
    numbers: list[tuple[int, float]] = []
    entry: PaneSums | None = None
    now_us = panes = 0
    for _ in range(3_000):
        now_us += drawn.choice((0, 0, 300, 1_000, 5_000, 100_000 if drawn.random() < 0.05 else 0))
        pane, oldest = now_us // width_us, (now_us - WINDOW_US) // width_us
        number = float(drawn.randrange(-5, 6)) if drawn.random() < 0.7 else None
        counted = [value for at, value in numbers if at >= oldest] + ([] if number is None else [number])
        for _ in range(2):
            assert total(entry or (), pane, number, oldest) == sum(counted)
            assert mean(entry or (), pane, number, oldest) == (
                sum(counted) / len(counted) if counted else None
            )
        if number is None:
            continue
        numbers.append((pane, number))
        if entry is None:
            entry = PaneSums(pane, number)
        else:
            panes += entry.add(pane, number, oldest)
        assert len(entry.older or ()) == panes
        copied, before = entry.copy(), total(entry, pane, None, oldest)
        copied.add(pane + 1, 100.0, oldest)
        assert total(entry, pane, None, oldest) == before
    assert panes < 100
