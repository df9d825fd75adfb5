"""The room for what rules count without keys, which nothing evicts."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine import Detector, Limits
from engine.evaluation.slices.slices import PLACE_BYTES
from engine.language.diagnostics import Refusal


def detector(*rules: str, limits: Limits | None = None) -> Detector:
    made = Detector(limits=limits or Limits())
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def refused(act: Callable[[], object]) -> bool:
    """Tell whether there is no room for a record."""
    try:
        act()
    except Refusal as refusal:
        [entry] = refusal.entries
        assert entry.code == 1400
        said = r"what the detector's rules count without `per` may grow to \d+ bytes; limit \d+"
        assert re.fullmatch(said, entry.message)
        return True
    return False


LARGE = "count(a >= 0) > 1000"
"""Of such records, one has room in 80 000 bytes, and two have none."""


def test_a_rule_is_refused_whose_records_without_keys_could_pass_half_of_the_bound() -> None:
    made = detector(LARGE, limits=Limits(state_bytes_max=160_000))
    assert refused(lambda: made.add_rule("other", "count(a == 1) > 1000"))
    assert refused(lambda: made.add_rule("values", "distinct(a) > 5000"))
    assert not refused(lambda: made.add_rule("keyed", "per k distinct(a) > 5000"))
    assert not refused(lambda: made.add_rule("the same", f"a == 1 and {LARGE}"))
    # A rule of another birth has a record of its own.
    made.evaluate({}, 0)
    assert refused(lambda: made.add_rule("late", LARGE))
    assert not refused(lambda: made.add_rule("small", "sum(a) > 5"))


def test_records_without_keys_may_take_exactly_half_of_the_bound() -> None:
    rules = (LARGE, "count(a == 1) > 1000 and sum(b) > 2")
    needed = detector(*rules).records.taken
    assert detector(*rules, limits=Limits(state_bytes_max=2 * needed)).records.taken == needed
    with pytest.raises(Refusal, match=f"may grow to {needed} bytes; limit {needed - 1}"):
        detector(*rules, limits=Limits(state_bytes_max=2 * needed - 1))


def test_a_changed_rule_gives_back_only_records_that_no_other_rule_reads() -> None:
    needed = detector(LARGE).records.taken
    made = detector(LARGE, f"a == 1 and {LARGE}", limits=Limits(state_bytes_max=2 * needed))
    first, second = (rule.id for rule in made.rules())
    assert refused(lambda: made.change_rule(first, condition="count(a == 1) > 1000"))
    made.change_rule(second, condition="a == 1")
    assert not refused(lambda: made.change_rule(first, condition="count(a == 1) > 1000"))
    assert made.records.taken == needed


def test_a_changed_rule_keeps_a_record_that_it_still_reads() -> None:
    both = f"{LARGE} and count(a == 1) > 1000"
    needed = detector(both).records.taken
    for bytes_max in (needed, needed - 1):
        made = detector(LARGE, limits=Limits(state_bytes_max=2 * bytes_max))
        [rule] = made.rules()
        assert refused(lambda: made.change_rule(rule.id, condition=both)) is (bytes_max < needed)
        assert made.records.taken <= bytes_max


def test_a_record_that_takes_the_place_of_another_may_take_what_that_one_took() -> None:
    small = "count(a == 1) > 500"
    needed = detector(LARGE).records.taken
    for bytes_max in (needed, needed - 1):
        made = detector(small, limits=Limits(state_bytes_max=2 * bytes_max))
        [rule] = made.rules()
        assert refused(lambda: made.change_rule(rule.id, condition=LARGE)) is (bytes_max < needed)


def test_a_record_has_room_once_another_is_gone() -> None:
    made = Detector(limits=Limits(state_bytes_max=160_000))
    first = made.add_rule("first", LARGE)
    made.evaluate({}, 0)
    assert not refused(lambda: made.change_rule(first, condition="count(a == 1) > 1000"))
    assert refused(lambda: made.change_rule(first, condition="count(a == 1) > 2000"))
    made.change_rule(first, enabled=False)
    second = made.add_rule("second", LARGE)
    assert not refused(lambda: made.change_rule(first, condition="count(a == 1) > 2000"))
    assert refused(lambda: made.change_rule(first, enabled=True))
    made.remove_rule(second)
    assert refused(lambda: made.change_rule(first, enabled=True))
    made.change_rule(first, condition=LARGE)
    assert not refused(lambda: made.change_rule(first, enabled=True))
    made.remove_rule(first)
    assert made.records.taken == 0
    assert not made.records._uses


def test_a_record_of_a_later_birth_is_another_one() -> None:
    bytes_max = detector(LARGE).records.taken
    made = detector(LARGE, limits=Limits(state_bytes_max=2 * bytes_max))
    [first] = made.rules()
    second = made.add_rule("off", LARGE)
    made.change_rule(second, enabled=False)
    made.evaluate({}, 0)
    assert refused(lambda: made.change_rule(second, enabled=True)), "its record would begin now"
    made.change_rule(first.id, condition="count(a == 3) > 1000")
    made.evaluate({}, 1)
    made.change_rule(first.id, condition="count(a == 4) > 1000")
    assert made.records.taken == bytes_max


def test_a_detector_that_exceeds_a_lowered_bound_can_still_lose_records() -> None:
    made = detector(LARGE, "count(a == 1) > 1000")
    made = Detector.load(made.dump(), Detector.STATE_VERSION, limits=Limits(state_bytes_max=10_000))
    first, second = (rule.id for rule in made.rules())
    made.change_rule(first, condition="count(a == 2) > 1000")
    made.change_rule(first, condition="count(a == 1) > 500")
    made.change_rule(second, enabled=False)
    assert made.evaluate({"a": 1}, 0) == []


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("count(a >= 0) >= 100", 1),
        ("count(a >= 0) within 1h > 3", 1),
        ("distinct(v) > 20", 10**3_999),
        ("distinct(v) > 20", 1),
        ("sum(a) within 256ms > 0", 1),
        ("avg(a) within 256ms > 0", 1),
        ("avg(a) > 0", 1),
    ],
)
def test_the_most_that_a_record_without_keys_may_take_is_known(rule: str, value: int) -> None:
    made = detector(rule)
    for number in range(1_000):
        made.evaluate({"a": 1, "v": value + number % 200}, number)
        record_bytes = made.histories.unkeyed_bytes - PLACE_BYTES
        assert record_bytes <= made.records.taken
    assert value == 1 or record_bytes > 0.95 * made.records.taken


@pytest.mark.storm
@pytest.mark.parametrize(
    ("rule", "bytes_max"),
    [
        ("count(a >= 0) >= 10000", 750_000),
        ("distinct(v) > 10000", 4_500_000),
        ("sum(a) within 256ms > 0", 40_000),
        ("avg(a) within 256ms > 0", 40_000),
    ],
)
def test_a_record_without_keys_takes_no_more_than_is_said(rule: str, bytes_max: int) -> None:
    made = detector(rule)
    most = 0
    for number in range(0, 21_000, 1_000):
        made.evaluate_many(
            [({"a": 1, "v": f"{each:>256}"}, each, None) for each in range(number, number + 1_000)]
        )
        most = max(most, made.histories.bytes)
    assert bytes_max / 2 < most < bytes_max


def test_values_without_a_key_are_taken_to_be_the_longest_while_there_is_room_for_them() -> None:
    # A share of the bound, which is for ten integers of 4 000 digits.
    needed = 160 + 10 * (140 + 3_600)
    limits = Limits(keys_max=1, state_bytes_max=2 * needed)
    detector("distinct(v) >= 10", limits=limits)
    with pytest.raises(Refusal, match=f"{needed} bytes; limit {needed - 1}"):
        detector("distinct(v) >= 10", limits=replace(limits, state_bytes_max=2 * needed - 1))
