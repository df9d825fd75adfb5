"""Windows with a least age: what is remembered of the witnesses, and what they decide."""

import random

import pytest

from engine import Detector, explain
from engine.evaluation.operators.memories import Latest
from engine.evaluation.operators.temporal.aged import RECORD_BYTES, STAMP_BYTES, add_witness
from engine.evaluation.slices.slices import Remembered
from engine.evaluation.stamps import stamp_of, time_of
from tests.audit import audit
from tests.differential.modes import in_mode

MODES = pytest.mark.parametrize("mode", ["fused", "indexed"])


def detector(*rules: str) -> Detector:
    made = Detector()
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def is_there(times_us: list[int], now_us: int, min_us: int, window_us: int) -> bool:
    return any(min_us <= now_us - time_us <= window_us for time_us in times_us)


# -- thinning -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("min_us", "window_us"), [(1, 2), (3, 4), (5, 6), (4, 9), (7, 8), (2, 12), (12, 13)])
def test_what_is_thinned_decides_as_the_full_list_does(min_us: int, window_us: int) -> None:
    drawn = random.Random(f"{min_us} {window_us}")
    thinned_out = 0
    for _ in range(60):
        times_us, entry, now_us = [0], [stamp_of(0, 1)], 0
        for number in range(2, 40):
            now_us += drawn.choice((0, 1, 1, 2, 3, drawn.randrange(2 * window_us)))
            times_us.append(now_us)
            before = len(entry)
            assert add_witness(entry, stamp_of(now_us, number), window_us - min_us, min_us) == (
                len(entry) - before
            )
            thinned_out += len(times_us) - len(entry)
            assert entry == sorted(set(entry))
            for later_us in range(now_us, now_us + window_us + 2):
                kept = is_there([*map(time_of, entry)], later_us, min_us, window_us)
                assert kept is is_there(times_us, later_us, min_us, window_us), (times_us, entry, later_us)
            # The latest that is old enough, and of the others no three that are so near.
            old = [time_us for time_us in map(time_of, entry) if now_us - time_us >= min_us]
            assert len(old) <= 1
            assert all(
                time_of(third) - time_of(first) > window_us - min_us
                for first, third in zip(entry[len(old) :], entry[len(old) + 2 :], strict=False)
            )
    assert thinned_out


@pytest.mark.parametrize(
    ("ages", "step_us", "most"),
    [
        ("[256s, 257s]", 500_000, 258),
        ("[256s, 257s]", 500_001, 513),
        ("[5m, 1h]", 1_000_000, 3),
        ("[1s, 2s]", 1, 3),
        ("[0.000256s, 0.000257s]", 1, 257),
        ("[1h, 2h]", 10_000_000, 3),
    ],
)
def test_what_is_remembered_is_bounded_however_many_witnesses_there_are(
    ages: str, step_us: int, most: int
) -> None:
    made = detector(f"per k once within {ages} a == 1")
    [remembered] = made.histories.memories.values()
    assert remembered.keep >= most - 1
    longest = 0
    for number in range(2_000):
        made.evaluate({"k": 1, "a": 1}, number * step_us / 1_000)
        longest = max(longest, len(kept(remembered)))
    assert most - 1 <= longest <= min(most, remembered.keep)
    audit(made)


def kept(remembered: Remembered) -> list[int]:
    """Return the record of the key 1."""
    slice_ = remembered.slices.find(1)
    return [] if slice_ is None else list(remembered.slices.kept_in(slice_, remembered))


def test_records_weigh_what_they_hold_and_give_it_back() -> None:
    made = detector("per k (q == 1 since within [1s, 1.1s] p == 1)", "per k count(p == 1) since q == 0 >= 9")
    ages, counted = made.histories.memories.values()
    empty_bytes = None
    for number in range(60):
        made.evaluate({"k": 1, "p": 1, "q": 1}, number * 70)
        audit(made)
        if number == 40:
            assert len(kept(ages)) > 10
            assert ages.memory.bytes_of(kept(ages)) == RECORD_BYTES + STAMP_BYTES * (len(kept(ages)) - 1)
            made.evaluate({"k": 1, "q": 0}, number * 70)
            assert (kept(ages), kept(counted)) == ([], [])
            empty_bytes = made.histories.bytes
            audit(made)
    made.evaluate({"k": 1, "q": 0, "p": 1}, 60 * 70)
    assert (len(kept(ages)), kept(counted)) == (1, [])
    assert made.histories.bytes == (empty_bytes or 0) + RECORD_BYTES
    audit(made)


# -- memories -----------------------------------------------------------------------------------------------


def test_without_a_least_age_or_with_one_of_0_there_is_one_memory_of_one_stamp() -> None:
    rules = ("once within {} p == 1", "earlier within {} p == 1", "historically for {} not p == 1")
    made = detector(*(rule.format(window) for rule in rules for window in ("1h", "[0s, 1h]", "[0, 5m]")))
    [remembered] = made.histories.memories.values()
    assert type(remembered.memory) is Latest


@pytest.mark.parametrize(
    ("rules", "memories"),
    [
        (("once within [1s, 2s] p == 1", "earlier within [1s, 2s] p == 1"), 1),
        (("historically for [1s, 2s] p == 1", "once within [1000ms, 2s] not p == 1"), 1),
        (("once within [1s, 2s] p == 1", "once within [1s, 3s] p == 1", "once within 2s p == 1"), 3),
        (("count(p == 1) since q == 1 >= 2", "count(p == 1) since q == 1 < 900"), 1),
        (("count(p == 1) since q == 1 >= 2", "count(p == 1) since q == 2 >= 2", "count(p == 1) > 1"), 3),
    ],
)
def test_equal_memories_are_shared(rules: tuple[str, ...], memories: int) -> None:
    assert len(detector(*rules).histories.memories) == memories


# -- explanations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now_ms", "witness_us"), [(999.999, None), (1_000, 0), (2_000, 0), (2_000.001, None)]
)
def test_a_witness_is_told_while_it_is_old_enough_and_inside_the_window(
    now_ms: float, witness_us: int | None
) -> None:
    made = detector("once within [1s, 2s] p == 1")
    made.evaluate({"p": 1}, 0)
    assert explain(made, {}, now_ms).rules[0].node.witness_us == witness_us


@MODES
def test_what_is_thinned_for_an_older_rule_is_not_thinned_for_a_younger_one(mode: str) -> None:
    with in_mode(mode):
        made = Detector()
        made.add_rule("old", "once within [1s, 3s] p == 1")
        made.evaluate({"p": 1}, 0)
        made.add_rule("young", "once within [1s, 3s] p == 1")
        made.evaluate({"p": 1}, 100)
        made.evaluate({"p": 1}, 200)
        names = [[each["name"] for each in made.evaluate({}, time_ms)] for time_ms in (1_050, 1_100, 3_100)]
        assert names == [["old"], ["old", "young"], ["old", "young"]]
