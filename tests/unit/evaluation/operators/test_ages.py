"""Windows with a least age: what is remembered of the witnesses, and what they decide."""

import random

import pytest

from engine import Detector, explain
from engine.evaluation.operators.counting.count_since import StampsSince
from engine.evaluation.operators.temporal.aged import RECORD_BYTES, STAMP_BYTES, add_witness
from engine.evaluation.operators.temporal.latest import Latest
from engine.evaluation.slices.slices import Remembered
from engine.evaluation.stamps import stamp_of, time_of
from tests.audit import audit
from tests.differential.modes import in_mode

MODES = pytest.mark.parametrize("mode", ["fused", "indexed"])


def fires(made: Detector, time_ms: float, **fields: object) -> bool:
    return bool(made.evaluate(fields, time_ms))


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
    """Give the record of the key 1."""
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


@MODES
def test_counts_since_a_reset_are_shared_by_rules_of_all_births(mode: str) -> None:
    with in_mode(mode):
        made = Detector()
        for number in range(4):
            made.add_rule(f"{number}", f"per k count(p == 1) since q == 1 >= {number + 2}")
            made.evaluate({"k": 1, "p": 1}, number)
        [remembered] = made.histories.memories.values()
        assert type(remembered.memory) is StampsSince
        assert remembered.keep == 5
        # The first has seen four of them, the last one.
        fired = [[each["name"] for each in made.evaluate({"k": 1, "p": 1}, 9)] for _ in range(4)]
        assert fired == [["0", "1"], ["0", "1", "2"], ["0", "1", "2"], ["0", "1", "2", "3"]]
        made.evaluate({"k": 1, "q": 1}, 10)
        fired = [[each["name"] for each in made.evaluate({"k": 1, "p": 1}, 11)] for _ in range(5)]
        assert fired == [[], ["0"], ["0", "1"], ["0", "1", "2"], ["0", "1", "2", "3"]]


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


@MODES
def test_a_slice_is_kept_as_long_as_a_witness_may_count_and_no_longer(mode: str) -> None:
    with in_mode(mode):
        made = detector("per k once within [1s, 2s] p == 1", "per k count(p == 1) since q == 1 > 2")
        ages, _ = made.histories.memories.values()
        made.evaluate({"k": 1, "p": 1}, 0)
        made.evaluate({"k": 1, "p": 1}, 500)
        slice_ = ages.slices.find(1)
        assert slice_ is not None
        assert ages.until_us(kept(ages), 0) == 2_500_000
        assert not ages.slices.drop_expired(slice_, 2_500_000)
        assert kept(ages)
        assert not ages.slices.drop_expired(slice_, 2_500_001), "what is counted stays"
        assert not kept(ages)
        made.evaluate({"k": 1, "q": 1}, 2_501)
        assert ages.slices.drop_expired(slice_, 2_501_000), "a count that was reset is nothing"


# -- explanations -------------------------------------------------------------------------------------------


def test_an_explanation_tells_the_witness_and_when_time_alone_will_turn_it() -> None:
    made = detector("once within [1s, 3s] p == 1", "historically for [1s, 3s] not p == 1")
    made.evaluate({"p": 1}, 0)
    made.evaluate({"p": 1}, 4_000)

    def told(time_ms: float) -> list[tuple[bool, int | None, int | None]]:
        nodes = [each.node for each in explain(made, {}, time_ms).rules]
        return [(node.verdict, node.witness_us, node.until_us) for node in nodes]

    assert told(4_500) == [(False, None, 4_999_999), (True, None, 4_999_999)]
    assert told(5_000) == [(True, 4_000_000, 7_000_000), (False, 4_000_000, 7_000_000)]
    assert told(7_000) == told(5_000)
    assert told(7_000.001) == [(False, None, None), (True, None, None)]


def test_an_explanation_of_since_names_the_event_that_broke_it() -> None:
    made = detector("q == 1 since within [1s, 3s] p == 1", "count(p == 1) since q == 0 >= 2")
    made.evaluate({"p": 1, "q": 1}, 0)
    made.evaluate({"p": 1, "q": 1}, 200)

    def told(time_ms: float, **fields: int) -> list[tuple[object, ...]]:
        nodes = [each.node for each in explain(made, fields, time_ms).rules]
        return [(node.verdict, node.witness_us, node.until_us, node.found) for node in nodes]

    assert told(1_000, q=1) == [(True, 0, 3_200_000, None), (True, None, None, 2)]
    assert told(1_000, q=0) == [(False, 1_000_000, None, None), (False, None, None, 0)]
    # What begins now is too young.
    assert told(1_000, q=0, p=1) == [(False, 1_000_000, 1_999_999, None), (False, None, None, 0)]
    why_not = [each.why_not for each in explain(made, {"q": 0}, 1_000).rules]
    assert [[part.value for part in one or ()] for one in why_not] == [[1], [0]]
