"""The first events of slices after births: which are kept, where a run begins for a rule, what they weigh."""

from engine.evaluation.times import FOREVER, NEVER
from engine.evaluation.state.storage.slots.starts import NO_BIRTH, Starts

STARTS_BYTES, START_BYTES = 150, 40


def begun(*births: tuple[int, int, int], window_us: int = 1_000) -> tuple[Starts, list[int]]:
    """Give the starts after births, each with the slot and the time of an event; and their weights."""
    weights: list[int] = []
    starts = Starts(weights.append)
    for birth, slot, time_us in births:
        starts.born(birth, window_us)
        starts.add(slot, time_us)
    return starts, weights


def test_a_run_begins_for_a_rule_at_the_first_event_after_its_birth_unless_it_started_later() -> None:
    starts, weights = begun((1, 0, 10), (2, 0, 20), (2, 3, 25))
    assert [starts.after(0, since_us) for since_us in (9, 10, 19, 20)] == [10, 20, 20, FOREVER]
    assert [starts.after(slot, 0) for slot in (3, 4)] == [25, FOREVER]
    assert [starts.begun(0, 15, since_us) for since_us in (14, 15, 20)] == [15, 20, FOREVER]
    assert starts.last_us == 20
    assert Starts(weights.append).last_us == NEVER
    assert sum(weights) == 2 * STARTS_BYTES + 3 * START_BYTES


def test_of_starts_before_the_longest_window_only_the_latest_is_kept() -> None:
    starts, weights = begun((1, 0, 0), (2, 0, 50), (3, 0, 100), window_us=100)
    assert starts.times == {0: (0, 50, 100)}
    starts.born(4, 20)
    starts.add(0, 149)
    assert starts.times == {0: (0, 50, 100, 149)}
    starts.add(0, 150)
    assert starts.times == {0: (50, 100, 149, 150)}
    starts.add(0, 400)
    assert starts.times == {0: (150, 400)}
    assert sum(weights) == STARTS_BYTES + 2 * START_BYTES


def test_without_a_window_two_starts_are_kept() -> None:
    starts, _ = begun((1, 0, 10), (2, 0, 11), (3, 0, 11), window_us=0)
    assert starts.times == {0: (11, 11)}


def test_the_latest_birth_counts_in_whatever_order_births_are_told() -> None:
    starts, _ = begun((7, 0, 1), (3, 0, 2))
    assert starts.birth == 7


def test_starts_that_are_restored_are_those_that_were_saved() -> None:
    saved, weights = begun((1, 0, 10), (2, 0, 20), (2, 3, 25), window_us=100)
    again: list[int] = []
    restored = Starts(again.append)
    restored.restore(saved.birth, saved.window_us, saved.times)
    assert (restored.birth, restored.window_us, restored.times) == (2, 100, saved.times)
    assert sum(again) == sum(weights)


def test_what_is_forgotten_weighs_nothing() -> None:
    starts, weights = begun((1, 0, 10), (2, 0, 20), (2, 3, 25))
    starts.drop(0)
    starts.drop(7)
    assert sum(weights) == STARTS_BYTES + START_BYTES
    assert starts.after(0, 0) == FOREVER
    starts.clear()
    assert (sum(weights), starts.times, starts.birth) == (0, {}, NO_BIRTH)
    for time_us in (10, 11, 11):
        starts.born(1, 0)
        starts.add(0, time_us)
    assert starts.times == {0: (11, 11)}, "nor does a window of before count"
