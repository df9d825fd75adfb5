"""Key tables: slots, which columns have entries there, what an event of a key sets, and what it meets."""

import random
import sys
from array import array
from typing import Any

import pytest

from engine.evaluation.facts.values import KEY_CHARS_MAX, slice_key_of
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.times import NEVER, Regime
from engine.evaluation.requirements import TRAITS
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.storage.pages import NO_SLOT
from engine.evaluation.state.storage.sizes import SLOT_BYTES, START_BYTES, STARTS_BYTES
from engine.evaluation.state.storage.slots.free_slots import FreeSlots
from engine.evaluation.state.storage.slots.shards import shrink
from engine.evaluation.state.storage.slots.sparse_entries import SparseEntries
from engine.evaluation.state.storage.tables import NOT_SEEN
from tests.stores import Bucket, add_column, unbounded_state

SLOTS = 256
"""On a page."""


def test_free_slots_of_the_lowest_page_are_taken_first() -> None:
    drawn, slots, taken = random.Random(1), FreeSlots(), dict[int, bool]()
    for _ in range(4_000):
        if drawn.random() < 0.6 or not any(taken.values()):
            free = [slot for slot, is_taken in taken.items() if not is_taken]
            slot = slots.take()
            assert slot == min(free, default=len(taken))
            taken[slot] = True
        else:
            slot = drawn.choice([slot for slot, is_taken in taken.items() if is_taken])
            slots.free(slot)
            taken[slot] = False
    assert list(slots.taken) == [taken[slot] for slot in range(len(taken))]
    pages = [[*taken.values()][first : first + SLOTS] for first in range(0, len(taken), SLOTS)]
    assert list(slots.room) == [page.count(False) for page in pages]
    restored = FreeSlots()
    restored.restore(bytearray(slots.taken))
    assert (restored.room, restored._roomy) == (slots.room, slots._roomy)


def test_a_shard_that_has_lost_most_entries_shrinks_and_keeps_the_others() -> None:
    shard: dict[Any, int] = {f"key {number}": number for number in range(1_000)}
    for number in range(990):
        del shard[f"key {number}"]
    before, expected = sys.getsizeof(shard), dict(shard)
    shrink(shard)
    assert shard == expected
    assert list(shard) == list(expected)
    assert sys.getsizeof(shard) < before / 10


def test_the_last_page_of_slots_can_be_dropped() -> None:
    slots = FreeSlots()
    for _ in range(SLOTS + 3):
        slots.take()
    for slot in (0, *range(SLOTS, SLOTS + 3)):
        slots.free(slot)
    slots.drop_page(1)
    assert (len(slots.taken), list(slots.room), list(slots._roomy)) == (SLOTS, [1], [1])
    assert [slots.take() for _ in range(3)] == [0, SLOTS, SLOTS + 1]


def test_sparse_entries_know_which_columns_a_slot_has() -> None:
    drawn, sparse, there = random.Random(2), SparseEntries[str](), dict[int, set[str]]()
    columns = ["a", "b", "c"]
    for _ in range(500):
        slot, column = drawn.randrange(3), drawn.choice(columns)
        if column in there.get(slot, ()) and drawn.random() < 0.5:
            sparse.drop(slot, column)
            there[slot].discard(column)
            if not there[slot]:
                del there[slot]
        else:
            sparse.add(slot, column)
            there.setdefault(slot, set()).add(column)
        assert sparse.keys() == there.keys()
        assert all(sorted(sparse.at(slot)) == sorted(there.get(slot, ())) for slot in range(4))
        # A single column needs no dict, unless there were several.
        assert all(isinstance(found, str) or len(found) > 0 for found in sparse.values())


@pytest.fixture
def state() -> State:
    return unbounded_state()


@pytest.fixture
def table(state: State) -> ColumnTable:
    return state.table(("k",))


def enter(table: ColumnTable, key: Any, now_us: int, tick: int) -> int:
    table.enter({"k": key}, {}, now_us, tick)
    slot = table.slot
    table.leave()
    assert (table.key, table.slot) == (None, NO_SLOT)
    return slot


def test_a_key_is_admitted_once_and_weighs_until_it_is_freed(state: State, table: ColumnTable) -> None:
    assert [table.admit(key, tick, 0) for tick, key in enumerate(("a", "b", "a"), 1)] == [0, 1, 0]
    assert (table.live, state.live, list(table.seen)) == (2, 2, [1, 2])
    assert state.bytes == 2 * SLOT_BYTES + key_bytes("a") + key_bytes("b")
    assert [table.slot_at({"k": key}, {}) for key in ("a", "b", "c", None)] == [0, 1, NO_SLOT, NO_SLOT]
    table.free(0)
    assert (table.live, state.live, list(table.seen), table.keys) == (1, 1, [NOT_SEEN, 2], [None, "b"])
    assert table.slot_at({"k": "a"}, {}) == NO_SLOT
    assert table.admit("c", 5, 0) == 0
    assert (list(table.seen), table.keys) == ([5, 2], ["c", "b"])
    table.free(0)
    table.free(1)
    assert (state.live, state.bytes) == (0, 0)


def test_an_event_sees_when_its_key_was_seen_before(table: ColumnTable) -> None:
    table.admit("a", 3, 30)
    table.enter({"k": "a"}, {}, 50, 5)
    assert (table.key, table.slot, table.previous_tick, list(table.seen)) == ("a", 0, 3, [5])
    assert list(table.times) == []
    table.enter({"k": "b"}, {}, 60, 6)
    assert (table.key, table.slot, table.live) == ("b", NO_SLOT, 1)
    table.enter({}, {}, 70, 7)
    assert (table.key, table.slot) == (None, NO_SLOT)


def test_with_a_clock_each_key_is_admitted_and_has_the_time_of_its_last_event(table: ColumnTable) -> None:
    table.admit("a", 3, 30)
    stamped = add_column(table, Regime.STAMPED)
    assert list(table.times) == [0]
    assert enter(table, "a", 50, 5) == 0
    assert (table.previous_tick, table.previous_us) == (3, 0)
    assert enter(table, "a", 60, 6) == 0
    assert (table.previous_tick, table.previous_us, list(table.times)) == (5, 50, [60])
    assert enter(table, "b", 70, 7) == 1
    assert (table.previous_tick, table.previous_us) == (0, 0)
    assert (list(table.times), list(table.first_ticks), list(table.seen)) == ([60, 70], [], [6, 7])
    table.remove_clock(stamped)
    assert (table.stamped, list(table.times)) == ([], [])


def test_with_runs_the_first_event_of_each_slice_is_known(table: ColumnTable) -> None:
    table.admit("a", 3, 30)
    begun = add_column(table, Regime.BEGUN, complete_at=4)
    assert (table.begun, table.begun_at) == ([begun], 4)
    enter(table, "b", 70, 7)
    enter(table, "b", 80, 8)
    assert (list(table.first_ticks), list(table.first_times)) == ([0, 7], [0, 70])
    later = add_column(table, Regime.BEGUN, complete_at=9)
    assert (list(table.first_ticks), table.begun_at) == ([0, 7], 9)
    assert add_column(table, Regime.BEGUN, complete_at=8)
    assert table.begun_at == 9
    table.remove_clock(later)
    assert list(table.first_ticks) == [0, 7]
    for each in table.begun[:]:
        table.remove_clock(each)
    assert (list(table.first_ticks), list(table.first_times), table.begun) == ([], [], [])


def test_clocked_columns_are_in_the_order_of_their_windows(table: ColumnTable) -> None:
    made = [add_column(table, Regime.STAMPED, window_us=window_us) for window_us in (5, None, 9, 1)]
    assert table.stamped == [made[1], made[2], made[0], made[3]]


def test_the_first_events_after_births_are_kept_for_live_keys(state: State, table: ColumnTable) -> None:
    table.admit("a", 1, 0)
    table.starts.born(4, 100)
    before = state.bytes
    enter(table, "a", 50, 5)
    enter(table, "a", 60, 6)
    assert table.starts.times == {0: (50,)}
    assert state.bytes == before + STARTS_BYTES + START_BYTES
    table.free(0)
    assert (table.starts.times, state.bytes) == ({}, 0)


def test_events_meet_the_buckets_that_their_slice_triggers(table: ColumnTable) -> None:
    add_column(table, Regime.STAMPED)
    few, begun = add_column(table, Regime.SEEN), add_column(table, Regime.BEGUN, complete_at=5)
    few.watch(first := Bucket())
    begun.watch(second := Bucket())
    slot = table.admit("a", 3, 0)

    def met(now_us: int, tick: int, key: str = "a") -> list[Any]:
        table.enter({"k": key}, {}, now_us, tick)
        found = table.meet()
        table.leave()
        return found

    # The slice is older than the node, and this is its first event since.
    assert met(6, 6) == [second]
    assert met(7, 7) == []
    few.put(slot, 7)
    assert met(8, 8) == [first]
    begun.end(slot, 8)
    assert met(9, 9) == [first, second]
    begun.begin(slot, 9)
    few.close(slot)
    assert met(10, 10) == []
    # A slice that begins after the node has begun its run with its first event.
    assert met(11, 11, "b") == []
    assert begun.began(table.slot_at({"k": "b"}, {})) == 11
    assert table.meet() == []
    begun.unwatch()
    few.unwatch()
    assert (table.triggering, list(table.watched)) == ({}, [])


def test_only_runs_that_are_younger_than_the_last_event_of_a_slice_are_met(table: ColumnTable) -> None:
    slot = table.admit("a", 7, 0)
    made = [add_column(table, Regime.BEGUN, complete_at=complete_at) for complete_at in (5, 9, 10)]
    made[0].watch(Bucket())
    made[1].watch(bucket := Bucket())
    table.enter({"k": "a"}, {}, 110, 11)
    # The third is not watched.
    assert table.meet() == [bucket]
    table.leave()
    table.seen[slot] = 7
    made[1].end(slot, 8)
    table.enter({"k": "a"}, {}, 120, 12)
    assert table.meet() == [bucket]


def test_a_long_text_is_a_key_by_its_digest(table: ColumnTable) -> None:
    for length in (KEY_CHARS_MAX, KEY_CHARS_MAX + 1):
        text = "x" * length
        table.enter({"k": text}, {}, 0, 1)
        assert table.key == slice_key_of(text)


def test_a_table_is_restored_with_its_keys_and_counts(state: State, table: ColumnTable) -> None:
    table.restore(["a", None, ("b", b"1")], array("q", [1, 0, 2]))
    assert (table.live, state.live) == (2, 2)
    assert state.bytes == 2 * SLOT_BYTES + key_bytes("a") + key_bytes(("b", b"1"))
    assert (list(table.held), list(table.seen), list(table.free_slots.taken)) == (
        [1, 0, 2],
        [0, 0, 0],
        [1, 0, 1],
    )
    assert table.admit("a", 5, 0) == 0
    assert table.admit("c", 5, 0) == 1


def test_past_a_bound_the_detector_is_due_and_touched_slots_are_logged_while_tracked() -> None:
    state = State(2, 1 << 40, TRAITS)
    table = state.table(("k",))
    for number in range(2):
        table.admit(number, 1, 0)
    assert (state.due, table.log) == (False, [])
    state.tracking = True
    table.admit("c", 1, 0)
    assert (state.due, table.log) == (True, [2])
    enter(table, 0, 5, 5)
    table.free(1)
    assert table.log == [2, 0, 1]


def test_entries_that_are_let_go_are_counted_no_longer(table: ColumnTable) -> None:
    for key in "abc":
        table.admit(key, 1, 0)
    made = add_column(table, Regime.SEEN)
    for slot in range(3):
        made.put(slot, 7)
    assert list(table.held) == [1, 1, 1]
    table.let_go([0, 2])
    assert list(table.held) == [0, 1, 0]


def test_a_key_of_several_facts_needs_all_of_them(state: State) -> None:
    table = state.table(("k", "j"))
    table.admit((b"1", "x"), 1, 0)
    assert table.slot_at({"k": 1.0, "j": "x"}, {}) == 0
    assert [table.slot_at(fields, {}) for fields in ({"k": 1}, {"j": "x"}, {"k": "1", "j": "x"})] == [
        NO_SLOT
    ] * 3


def test_a_new_page_of_slots_extends_the_columns(table: ColumnTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.evaluation.state.storage.columns.PAGED_FROM", 1)
    made = add_column(table, Regime.SEEN)
    for number in range(SLOTS + 1):
        slot = table.admit(number, 1, 0)
        if number < 2:
            made.put(slot, 5)
    assert made.counts == [2, 0]
    assert [made.at(slot) for slot in (0, 1, 2, SLOTS, NO_SLOT)] == [5, 5, NEVER, NEVER, NEVER]
