"""What is counted: which events and values, what is kept of them, and for how long they count."""

import random

import pytest

from engine import Detector
from engine.evaluation.operators.counting.distinct import nth_latest
from engine.evaluation.operators.counting.panes import PaneSums, mean, pane_us, total
from tests.differential.modes import in_mode

MODES = pytest.mark.parametrize("mode", ["fused", "indexed"])


def detector(*rules: str) -> Detector:
    made = Detector()
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def fires(made: Detector, time_ms: float, **fields: object) -> bool:
    return bool(made.evaluate(fields, time_ms))


@MODES
def test_an_event_counts_once_however_many_triggers_it_meets_and_rules_read_it(mode: str) -> None:
    with in_mode(mode):
        made = detector(
            "count(a == 1 or b == 1) == 1",
            "sum(n where a == 1 or b == 1) == 5",
            "count(a == 1 or b == 1) == 1",
        )
    assert len(made.evaluate({"a": 1, "b": 1, "n": 5}, 0)) == 3


def test_a_window_of_no_length_holds_a_microsecond() -> None:
    made = detector("sum(a) within 0s >= 2")
    assert [fires(made, time_ms, a=1) for time_ms in (0, 0.001, 0.001, 0.002)] == [False, False, True, False]


def test_a_number_past_a_doubles_range_does_not_count() -> None:
    made = detector("avg(n) == 3")
    assert fires(made, 0, n=3)
    assert fires(made, 1, n=10**400)
    assert fires(made, 2, n=True)
    assert not fires(made, 3, n=4)


def test_values_are_told_apart_by_type_and_long_ones_by_their_digest() -> None:
    made = detector("distinct(v) == 5")
    long = "x" * 10_000
    values = [1, 1.0, True, "1", long, long + "y", long]
    assert [fires(made, 0, v=value) for value in values] == [*[False] * 5, True, True]
    assert made.histories.bytes < 2_000


def test_a_record_keeps_no_more_than_a_comparison_needs() -> None:
    made = detector("count(a == 1) within 1h >= 3", "per k count(a == 1) > 1000", "distinct(n) >= 3")
    for number in range(10_000):
        made.evaluate({"a": 1, "k": 1, "n": number}, number)
    entries = {
        remembered.keep: len(entry)
        for slices in made.histories.slices.values()
        for key in ((1,) if slices.path else ((),))
        for remembered, entry in slices.held_in(slices.find(key) or [])
    }
    assert entries.keys() == {3, 1_001}
    assert 1_001 <= entries[1_001] <= 1_001 * 5 / 4 + 8


def test_a_rule_that_needs_more_of_a_record_finds_what_was_kept_for_others() -> None:
    made = detector("count(a == 1) >= 2")
    for _ in range(40):
        made.evaluate({"a": 1}, 0)
    made.add_rule("more", "count(a == 1) >= 30")
    fired = [[rule.name for rule in each] for each in made.evaluate_many([({"a": 1}, 1, None)] * 30)]
    assert fired == [*[["r0"]] * 29, ["r0", "more"]], "it sees the events after it alone"


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


def test_a_sum_holds_until_its_last_pane_has_left_the_window() -> None:
    made = detector("per k sum(a) within 256ms >= 6")
    for time_ms in (0, 0.999, 1.0):
        made.evaluate({"k": 1, "a": 2}, time_ms)
    assert [fires(made, time_ms, k=1) for time_ms in (256.999, 257.0)] == [True, False]
    (slices,) = made.histories.slices.values()
    assert slices.until_us(slices.find(1) or []) == 1_999 + WINDOW_US
