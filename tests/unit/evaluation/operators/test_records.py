"""Memories of varying length: what counts, what is kept of it, and when it is given back."""

import re
from collections.abc import Callable

import pytest

from engine import Detector, Limits
from engine.language.diagnostics import Refusal
from tests.differential.modes import in_mode

HOUR_MS = 3_600_000


def detector(*rules: str, limits: Limits | None = None) -> Detector:
    made = Detector(limits=limits or Limits())
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def fires(made: Detector, time_ms: float, **fields) -> bool:
    return bool(made.evaluate(fields, time_ms))


def test_an_event_that_meets_several_triggers_counts_once():
    with in_mode("indexed"):
        made = detector("count(a == 1 or b == 1) == 1", "sum(n where a == 1 or b == 1) == 5")
        assert [action["name"] for action in made.evaluate({"a": 1, "b": 1, "n": 5}, 0)] == ["r0", "r1"]


def test_two_rules_that_read_one_memory_add_an_event_once():
    made = detector("count(a == 1) == 1", "count(a == 1) == 1 and b == 2")
    assert len(made.evaluate({"a": 1, "b": 2}, 0)) == 2


def test_a_window_of_no_length_holds_a_microsecond():
    made = detector("sum(a) within 0s >= 2")
    assert [fires(made, time_ms, a=1) for time_ms in (0, 0.001, 0.001, 0.002)] == [False, False, True, False]


def test_a_number_past_a_doubles_range_does_not_count():
    made = detector("avg(n) == 3")
    assert fires(made, 0, n=3)
    assert fires(made, 1, n=10**400)
    assert fires(made, 2, n=True)
    assert not fires(made, 3, n=4)


def test_values_are_told_apart_by_type_and_long_ones_by_their_digest():
    made = detector("distinct(v) == 5")
    long = "x" * 10_000
    values = [1, 1.0, True, "1", long, long + "y", long]
    assert [fires(made, 0, v=value) for value in values] == [*[False] * 5, True, True]
    assert made.state.bytes < 2_000


@pytest.mark.parametrize(
    "mode", ["fused, tidied at every event, looked up", "indexed, tidied at every event"]
)
@pytest.mark.parametrize(
    "rule",
    [
        "count(a >= 0) within 1h >= 3",
        "distinct(a) within 1h > 3",
        "sum(a) within 1h > 10",
        "avg(a where a > 0) within 1h > 10",
        "earlier within 1h a == 1",
    ],
)
def test_expiry_gives_memory_back(rule: str, mode: str):
    with in_mode(mode):
        made = detector(f"per k ({rule})")
        for number in range(3_000):
            made.evaluate({"k": number % 1_500, "a": 1 + number // 1_500}, number)
        full, live = made.state.bytes, made.state.live
        assert live == 1_500
        for number in range(100):
            made.evaluate({"k": "x", "a": -1}, 2 * HOUR_MS + number)
        assert made.state.live < live // 10
        assert made.state.bytes < full // 10


@pytest.mark.parametrize(
    "rule", ["count(a >= 0) within 1h >= 2", "distinct(a) within 1h > 1", "sum(a) within 1h > 3"]
)
def test_rows_that_are_all_empty_are_used_again(rule: str):
    with in_mode("indexed, tidied at every event"):
        made = detector(f"per k ({rule})")
        for beginning_ms in (0, 3 * HOUR_MS):
            for number in range(1_500):
                assert not fires(made, beginning_ms, k=number, a=1)
            for number in range(0, 1_500, 50):
                assert fires(made, beginning_ms, k=number, a=3)
            for number in range(300):
                fires(made, beginning_ms + 2 * HOUR_MS + number, k="x")
            assert made.state.live <= 1
            assert made.state.bytes < 1_000


def test_a_record_keeps_no_more_times_than_a_comparison_needs():
    made = detector("count(a == 1) within 1h >= 3", "per k count(a == 1) > 1000")
    for number in range(10_000):
        made.evaluate({"a": 1, "k": 1}, number)
    assert sorted(max(map(len, store.long.values())) < 2_000 for store in made.state.stores.values())
    assert made.state.bytes < 20_000


def test_a_key_with_a_record_is_evicted_like_any_other():
    made = detector("per k count(a == 1) >= 2", limits=Limits(keys_max=1))
    assert not fires(made, 0, k="A", a=1)
    assert not fires(made, 1, k="B", a=1)
    assert not fires(made, 2, k="A", a=1)
    assert fires(made, 3, k="A", a=1)


def test_removing_a_rule_gives_back_what_only_it_remembers():
    made = Detector()
    ids = [
        made.add_rule("r", rule)
        for rule in (
            "count(a == 1) >= 2",
            "per k distinct(a) > 1",
            "per k where previous a == 1 sum(a) > 1",
            "avg(a) within 1h > 1",
        )
    ]
    for number in range(100):
        made.evaluate({"k": number % 7, "a": number % 3}, number)
    assert made.state.bytes
    for rule_id in ids:
        made.remove_rule(rule_id)
    assert (made.state.bytes, made.state.live, made.state.tables, made.state.stores) == (0, 0, {}, {})


def test_rules_born_at_different_times_share_counts_and_see_only_their_own_past():
    with in_mode("indexed"):
        made = detector("per k count(a == 1) within 1h >= 2")
        assert not fires(made, 0, k=1, a=1)
        made.add_rule("late", "per k count(a == 1) within 1h >= 2")
        assert [action["name"] for action in made.evaluate({"k": 1, "a": 1}, 1)] == ["r0"]
        assert made.state.joined
        assert len(made.evaluate({"k": 1, "a": 1}, 2)) == 2


def test_sums_of_rules_born_at_different_times_are_one_when_all_that_came_between_has_expired():
    with in_mode("indexed"):
        made = detector("sum(a) within 10s >= 3")
        fires(made, 0, a=1)
        made.add_rule("late", "sum(a) within 10s >= 3")
        assert [action["name"] for action in made.evaluate({"a": 2}, 1)] == ["r0"]
        assert not made.state.joined
        made.evaluate({"a": 1}, 11_000)
        assert made.state.joined
        assert len(made.evaluate({"a": 2}, 11_001)) == 2


def test_a_key_filtered_by_history_triggers_nodes_by_its_own_birth():
    with in_mode("indexed"):
        made = detector()
        made.evaluate({"a": 1}, 0)
        made.add_rule("r", "previous (per k where (once a == 1) (once b == 1))")
        said = [{"k": 1, "a": 1, "b": 1}, {}, {"k": 1}, {}, {"k": 2}, {}]
        assert [fires(made, number, **fields) for number, fields in enumerate(said)] == [
            *[False, True] * 2, False, False
        ]  # fmt: skip


def test_a_slice_that_holds_nothing_more_is_watched_by_nothing():
    with in_mode("indexed"):
        made = detector("per k (not a == 2 since a == 1)")
        made.evaluate({"k": 1, "a": 1}, 0)
        [table] = made.state.tables.values()
        assert table.triggering
        made.evaluate({"k": 1, "a": 2}, 1)
        assert table.triggering == {}


def test_no_key_is_evicted_for_what_records_without_keys_take() -> None:
    made = detector("count(a >= 0) >= 300", "per k once a == 0", limits=Limits(state_bytes_max=10_000))
    for number in range(500):
        made.submit({"k": number % 25, "a": 0}, number)
    assert (made.state.live, made.keys_evicted) == (25, 0)
    assert made.state.bytes > 10_000 > made.state.keyed_bytes
    assert made.state.bytes == made.state.keyed_bytes + made.state.unkeyed_bytes
    made = Detector.load(made.dump(), Detector.STATE_VERSION, limits=made.limits)
    assert fires(made, 500, k=0)
    assert (made.state.live, made.keys_evicted) == (25, 0)


def refused(act: Callable[[], object]) -> bool:
    """Tell whether there is no room for a record."""
    try:
        act()
    except Refusal as refusal:
        [entry] = refusal.entries
        assert entry.code == 1400
        said = r"what the detector's rules count without `per` could come to take \d+ bytes; at most \d+ .*"
        assert re.fullmatch(said, entry.message)
        return True
    return False


LARGE = "count(a >= 0) > 1000"
"""Of such records, one has room in 20 000 bytes, and two have none."""


def test_a_rule_is_refused_whose_records_without_keys_could_pass_half_of_the_bound() -> None:
    made = detector(LARGE, limits=Limits(state_bytes_max=40_000))
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
    needed = detector(*rules).records.bytes
    assert detector(*rules, limits=Limits(state_bytes_max=2 * needed)).records.bytes == needed
    with pytest.raises(Refusal, match=f"come to take {needed} bytes; at most {needed - 1} are allowed"):
        detector(*rules, limits=Limits(state_bytes_max=2 * needed - 1))


def test_a_changed_rule_gives_back_only_records_that_no_other_rule_reads() -> None:
    needed = detector(LARGE).records.bytes
    made = detector(LARGE, f"a == 1 and {LARGE}", limits=Limits(state_bytes_max=2 * needed))
    first, second = (rule.id for rule in made.rules())
    assert refused(lambda: made.change_rule(first, condition="count(a == 1) > 1000"))
    made.change_rule(second, condition="a == 1")
    assert not refused(lambda: made.change_rule(first, condition="count(a == 1) > 1000"))
    assert made.records.bytes == needed


def test_a_changed_rule_keeps_a_record_that_it_still_reads() -> None:
    both = f"{LARGE} and count(a == 1) > 1000"
    needed = detector(both).records.bytes
    for bytes_max in (needed, needed - 1):
        made = detector(LARGE, limits=Limits(state_bytes_max=2 * bytes_max))
        [rule] = made.rules()
        assert refused(lambda: made.change_rule(rule.id, condition=both)) is (bytes_max < needed)
        assert made.records.bytes <= bytes_max


def test_a_record_that_takes_the_place_of_another_may_take_what_that_one_took() -> None:
    small = "count(a == 1) > 500"
    needed = detector(LARGE).records.bytes
    for bytes_max in (needed, needed - 1):
        made = detector(small, limits=Limits(state_bytes_max=2 * bytes_max))
        [rule] = made.rules()
        assert refused(lambda: made.change_rule(rule.id, condition=LARGE)) is (bytes_max < needed)


def test_a_record_has_room_once_another_is_gone() -> None:
    made = Detector(limits=Limits(state_bytes_max=40_000))
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
    assert made.records.bytes == 0
    assert not made.records._uses


def test_a_record_of_a_later_birth_is_another_one() -> None:
    bytes_max = detector(LARGE).records.bytes
    made = detector(LARGE, limits=Limits(state_bytes_max=2 * bytes_max))
    [first] = made.rules()
    second = made.add_rule("off", LARGE)
    made.change_rule(second, enabled=False)
    made.evaluate({}, 0)
    assert refused(lambda: made.change_rule(second, enabled=True)), "its record would begin now"
    made.change_rule(first.id, condition="count(a == 3) > 1000")
    made.evaluate({}, 1)
    made.change_rule(first.id, condition="count(a == 4) > 1000")
    assert made.records.bytes == bytes_max


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
        assert made.state.bytes == made.state.unkeyed_bytes <= made.records.bytes
    assert value == 1 or made.state.bytes > 0.95 * made.records.bytes


@pytest.mark.parametrize(
    ("rule", "bytes_max"),
    [
        ("count(a >= 0) >= 10000", 130_000),
        ("distinct(v) > 10000", 4_500_000),
        ("sum(a) within 256ms > 0", 8_000),
        ("avg(a) within 256ms > 0", 8_000),
    ],
)
def test_a_record_without_keys_takes_no_more_than_is_said(rule: str, bytes_max: int) -> None:
    made = detector(rule)
    most = 0
    for number in range(0, 21_000, 1_000):
        made.evaluate_many(
            [({"a": 1, "v": f"{each:>256}"}, each, None) for each in range(number, number + 1_000)]
        )
        most = max(most, made.state.bytes)
    assert bytes_max / 2 < most < bytes_max
