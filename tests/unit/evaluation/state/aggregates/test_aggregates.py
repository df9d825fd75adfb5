"""Records of values and of sums, asked directly: what each holds, and what it takes."""

import math
import sys
from array import array

import pytest

from engine import Detector
from engine.evaluation.times import FOREVER, NEVER
from engine.evaluation.state.aggregates.interned import Interned
from engine.evaluation.state.aggregates.panes import Panes, PaneSums
from engine.evaluation.state.aggregates.times import Times
from engine.evaluation.state.aggregates.values import Values
from engine.evaluation.state.storage import columns
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.sizes import RECORD_BYTES, STEP_BYTES, array_bytes
from engine.evaluation.state.storage.slots.shards import SHARDS
from tests.stores import unbounded_state

SLOTS = 256
"""On a page."""


@pytest.fixture(params=[1, 1 << 62], ids=["rows", "objects"])
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ColumnTable:
    """A table with a few keys, the records of which are rows or objects."""
    monkeypatch.setattr(columns, "PAGED_FROM", request.param)
    made = unbounded_state().table(("k",))
    for key in "abcxy":
        made.admit(key, 1, 0)
    return made


def panes(table: ColumnTable, window_us: int | None, *, counted: bool) -> Panes:
    """Give sums that are in rows or in objects, as the table has it. The last two slots have some already."""
    made = Panes(table, window_us, counted=counted)
    table.columns.append(made)
    for slot in (3, 4):
        made.add(None, slot, 0, 1, 1)
    return made


def sums(panes: list[int], added: list[float], counts: list[int] | None = None) -> PaneSums:
    return PaneSums(array("q", panes), array("d", added), None if counts is None else array("q", counts))


def test_a_record_of_panes_adds_to_the_last_one_and_drops_those_that_count_no_longer() -> None:
    record = sums([3], [1.5], [1])
    record.add(3, 2.0, 0)
    record.add(5, -0.0, 0)
    assert (list(record.panes), list(record.sums), record.counts) == ([3, 5], [3.5, 0.0], array("q", [2, 1]))
    assert math.copysign(1, record.sums[1]) == 1
    assert (record.before, record.count) == (3.5, 3)
    record.add(9, 4.0, 5)
    assert (list(record.panes), list(record.sums), record.counts) == ([5, 9], [0.0, 4.0], array("q", [1, 1]))
    assert (record.before, record.count) == (0.0, 2)


def test_what_was_read_of_some_panes_is_read_anew_after_a_change_and_for_others() -> None:
    record = sums([0, 1, 2, 3], [0.0, 1.0, 1.0, 1.0], [1, 1, 1, 1])
    # As many numbers, and as large a sum, as the next pane has for a number.
    assert record.total(1) == (3.0, 3)
    assert record.total(3) == (1.0, 1)
    record.add(3, 5.0, 0)
    assert record.total(3) == (6.0, 2)
    assert record.total(0) == (8.0, 5)
    assert sums([0, 1], [1.0, 2.0]).total(1) == (2.0, 0)


@pytest.mark.parametrize(("window_us", "length"), [(256_000, 8), (None, 1)])
@pytest.mark.parametrize("counted", [False, True])
def test_a_page_of_sums_takes_what_its_arrays_take(
    table: ColumnTable, window_us: int | None, length: int, *, counted: bool
) -> None:
    made = Panes(table, window_us, counted=counted)
    numbers = SLOTS * (1 + length * (2 if counted else 1))
    assert list(map(len, made._blank)) == [numbers, SLOTS * length]
    assert made._page_bytes == array_bytes(numbers) + array_bytes(SLOTS * length)
    record = sums([0], [1.0], [1] if counted else None)
    assert made.bytes_of(record) == RECORD_BYTES + (3 if counted else 2) * STEP_BYTES


def test_a_sum_holds_until_its_last_pane_has_left_the_window(table: ColumnTable) -> None:
    made = panes(table, 256_000, counted=True)
    for now_us in (0, 999, 1_000):
        assert made.add("c", 2, now_us, 1, 2) == 2
    assert made.until_us(2) == 1_999 + 256_000
    assert [made.added(2, now_us) for now_us in (0, 256_999, 257_000, 257_999, 258_000)] == [
        (6.0, 3),
        (6.0, 3),
        (2.0, 1),
        (2.0, 1),
        (0.0, 0),
    ]
    assert made.mean(2, 257_000) == 2.0
    assert made.mean(2, 258_000) is None
    assert made.added(1, 0) == (0.0, 0)
    record = made.record(2)
    assert (list(record.panes), list(record.sums), list(record.counts)) == ([0, 1], [4.0, 2.0], [2, 1])
    assert made.record(1) is None


def test_a_sum_without_a_window_is_one_pane(table: ColumnTable) -> None:
    made = panes(table, None, counted=False)
    for now_us, value in ((0, 1), (10**15, 2.5), (10**16, True), (10**16, "3")):
        made.add("c", 2, now_us, 1, value)
    record = made.record(2)
    assert (list(record.panes), list(record.sums), record.counts) == ([0], [3.5], None)
    assert made.added(2, 10**17)[0] == 3.5


@pytest.mark.parametrize("count", [1, 8, 9, 12, 20])
def test_panes_are_kept_and_cleared_however_many_they_are(table: ColumnTable, count: int) -> None:
    made = panes(table, 256_000, counted=True)
    made.add("a", 0, 0, 1, 7)
    for number in range(count):
        made.add("b", 1, number * 1_000, 1, number)
        made.add("b", 1, number * 1_000, 1, 1)
        made.add("c", 2, number * 1_000, 1, 1)
    record = made.record(1)
    assert list(record.panes) == list(range(count))
    assert list(record.sums) == [number + 1.0 for number in range(count)]
    assert list(record.counts) == [2] * count
    assert made.latest_us(record) == count * 1_000 - 1
    copy = made.copied()
    made.close(1)
    assert made.record(1) is None
    assert made.added(1, 0) == (0.0, 0)
    assert [made.added(slot, 0) for slot in (0, 2)] == [(7.0, 1), (float(count), count)]
    assert [list(copy.record(slot).sums) for slot in (1, 2)] == [list(record.sums), [1.0] * count]
    made.add("b", 1, 0, 1, 4)
    assert made.added(1, 0) == (4.0, 1)


def test_what_is_later_of_a_record_is_a_copy(table: ColumnTable) -> None:
    values = Values(table, None, 3, 3)
    record = values.ordered([("a", 1), ("b", 5), ("c", 5), ("d", 6)])
    assert list((values.later(record, 4) or {}).items()) == [("b", 5), ("c", 5), ("d", 6)]
    assert list((values.later(record, 5) or {}).items()) == [("d", 6)]
    assert values.later(record, 6) is None
    times = Times(table, None, 3, 3)
    assert times.later(array("q", [1, 5, 6]), 4) == array("q", [5, 6])
    assert times.later(array("q", [1, 5, 6]), 5) == array("q", [6])
    assert times.later(array("q", [1, 5, 6]), 6) is None
    made, record = Panes(table, 1_000, counted=True), sums([1, 2], [1.0, 2.0], [1, 1])
    later = made.later(record, 10**9)
    assert later is not None
    assert (later.panes, later.sums, later.counts) == (record.panes, record.sums, record.counts)
    assert later.panes is not record.panes


def test_a_value_is_found_next_to_where_its_number_seems_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first value in rows has the number 0, and all of its bytes stand in the time before it, too.
    monkeypatch.setattr(columns, "PAGED_FROM", 1)
    made = Detector()
    made.add_rule("r", "per k distinct(v) >= 3")
    said = [("w", "x"), ("x", "zero"), ("y", "one"), ("y", "zero"), ("y", "zero"), ("y", "one"), ("y", "two")]
    fired = made.evaluate_many([({"k": key, "v": value}, 0, None) for key, value in said])
    assert [bool(each) for each in fired] == [*[False] * 6, True]


@pytest.mark.parametrize("most", [1, 3, 12, 14])
@pytest.mark.parametrize("window_us", [None, 10])
def test_the_latest_times_are_known_up_to_the_most_that_are_needed(
    table: ColumnTable, most: int, window_us: int | None
) -> None:
    made = Times(table, window_us, most, 1)
    table.columns.append(made)
    for slot in (3, 4):
        made.add(None, slot, 0, 1)
    assert (made.record(0), made.nth(0, 1), made.earliest_us(0)) == (None, NEVER, FOREVER)
    for now_us in range(5, 45):
        made.add("a", 0, now_us, 1)
        times = list(range(5, now_us + 1))[-most:]
        record = made.record(0)
        assert record is not None
        # Of those that have expired, some may be left out.
        counted = [time_us for time_us in times if window_us is None or time_us >= now_us - window_us]
        assert list(record)[-len(counted) :] == counted
        assert made.latest_us(record) == now_us == made.at(0)
        assert [made.nth(0, number) for number in range(1, len(counted) + 1)] == counted[::-1]
        assert made.nth(0, len(record) + 1) == NEVER
        if window_us is None:
            assert made.earliest_us(0) == times[0]
    made.close(0)
    assert (made.record(0), made.nth(0, 1)) == (None, NEVER)


@pytest.mark.parametrize("kind", ["times", "values", "panes"])
def test_without_records_nothing_is_left(table: ColumnTable, kind: str) -> None:
    made: Times | Values | Panes = {
        "times": Times(table, None, 3, 3),
        "values": Values(table, None, 3, 3),
        "panes": Panes(table, 1_000, counted=True),
    }[kind]
    table.columns.append(made)
    for _ in range(2):
        for slot in range(5):
            made.add(None, slot, 0, 1, *(() if isinstance(made, Times) else (1,)))
        assert made.bytes > 0
        for slot in range(5):
            made.close(slot)
        assert (made.few, made.rows, made.long, made.bytes, made.held) == ({}, [], {}, 0, 0)
        assert not isinstance(made, Values) or made._interned is None


def test_the_number_of_a_value_that_is_gone_is_given_again() -> None:
    weighed = list[int]()
    interned = Interned(weighed.append)
    assert [interned.take(value) for value in ("a", "b", "a")] == [0, 1, 0]
    interned.give_back(0)
    assert (list(interned.uses), interned.values) == ([1, 1], ["a", "b"])
    for value in range(100):
        assert interned.take(value) == 2
        interned.give_back(2)
    interned.give_back(0)
    assert [interned.take("c"), interned.take("d")] == [0, 2]
    for number in range(3):
        interned.give_back(number)
    assert (interned.values, list(interned.uses), sum(weighed)) == ([None] * 3, [0] * 3, 0)


def test_values_that_are_gone_give_their_room_back() -> None:
    interned = Interned(lambda _: None)
    numbers = [interned.take(value) for value in range(300 * SHARDS)]
    full = sum(map(sys.getsizeof, interned.shards))
    for number in numbers:
        interned.give_back(number)
    assert sum(map(sys.getsizeof, interned.shards)) < full / 2


def times(table: ColumnTable, most: int = 14, window_us: int | None = None) -> Times:
    """Give times of one event at each slot."""
    made = Times(table, window_us, most, 1)
    table.columns.append(made)
    for slot in range(5):
        made.add(None, slot, 10 * slot, 1)
    return made


def test_a_copy_stays_as_it_was_and_each_record_is_copied_once_for_it(table: ColumnTable) -> None:
    made = times(table)
    copy = made.copied()
    for now_us in range(50, 80):
        for slot in (1, 2):
            made.add(None, slot, now_us, 1)
        if now_us == 65:
            made.close(2)
    assert [list(copy.record(slot) or ()) for slot in range(5)] == [[0], [10], [20], [30], [40]]
    assert [copy.at(slot) for slot in range(5)] == [0, 10, 20, 30, 40]
    assert list(made.record(2) or ()) == list(range(66, 80))
    own = made.long.get(1)
    made.add(None, 1, 90, 1)
    assert made.long.get(1) is own


def test_of_a_lent_object_that_becomes_a_row_nothing_is_copied_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = unbounded_state().table(("k",))
    for number in range(7):
        table.admit(number, 1, 0)
    made = times(table)
    copy = made.copied()
    monkeypatch.setattr(columns, "PAGED_FROM", 1)
    made.add(None, 5, 50, 1)
    assert (made.few, made.long) == (None, {})
    for now_us in range(60, 80):
        made.add(None, 0, now_us, 1)
    assert list(made.record(0) or ())[-14:] == list(range(66, 80))
    assert list(copy.record(0) or ()) == [0]


def test_of_some_slots_a_copy_has_their_records_at_other_places(table: ColumnTable) -> None:
    made = times(table)
    made.close(3)
    copy = made.copied({4: 0, 3: 1, 1: 2})
    assert (copy.few, {slot: list(record) for slot, record in copy.long.items()}) == (
        {0: 40, 2: 10},
        {0: [40], 2: [10]},
    )
    assert list(made.record(4) or ()) == [40]


def test_of_the_records_of_others_what_is_later_and_has_not_expired_is_taken_over(table: ColumnTable) -> None:
    made = times(table, window_us=100)
    made.add(None, 0, 60, 1)
    taken = Times(table, 100, 14, 1)
    # The last event of slot 2 expires after 120, that of slot 1 before. That of slot 0 came at 60.
    taken.take_over(made, 10, 120)
    assert {slot: list(taken.record(slot) or ()) for slot in taken.slots()} == {
        0: [60],
        2: [20],
        3: [30],
        4: [40],
    }
    later = Times(table, 100, 14, 1)
    later.take_over(made, 35, 121)
    assert {slot: list(later.record(slot) or ()) for slot in later.slots()} == {0: [60], 4: [40]}
    latest = Times(table, 100, 14, 1)
    latest.take_over(made, 0, 130)
    assert sorted(latest.slots()) == [0, 3, 4]


def test_the_records_of_a_page_expire_together(table: ColumnTable) -> None:
    made = times(table, window_us=100)
    for now_us in range(60, 80):
        made.add(None, 1, now_us, 1)
    if made.few is not None:
        return
    made.drop_expired_of(0, 131)
    assert {slot: made.record(slot) is not None for slot in range(5)} == {
        **dict.fromkeys((0, 2, 3), False),
        **dict.fromkeys((1, 4), True),
    }
    made.drop_expired_of(0, 1_000)
    assert (made.few, made.long, made.bytes) == ({}, {}, 0)
