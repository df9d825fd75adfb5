"""The memory of a node by key, asked directly: as a dict and in pages, with each regime."""

import random
from typing import Any

import pytest

from engine.evaluation.times import FOREVER, NEVER, Regime
from engine.evaluation.state.storage import columns
from engine.evaluation.state.storage.columns import Column, ColumnTable
from engine.evaluation.state.storage.pages import NO_SLOT
from engine.evaluation.state.storage.sizes import ENTRY_BYTES, PAGE_BYTES, TICK_BYTES
from tests.stores import Bucket, add_column, unbounded_state

KEYS = 600
PAGES = 3
"""That so many slots are on."""


@pytest.fixture(params=[True, False], ids=["pages", "dict"])
def paged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether columns with two entries are in pages."""
    is_paged: bool = request.param
    monkeypatch.setattr(columns, "PAGED_FROM", 1 if is_paged else 1 << 40)
    monkeypatch.setattr(columns, "SPARSE_SHARE", 1 << 40)
    return is_paged


@pytest.fixture
def table(paged: bool) -> ColumnTable:
    """A table with many keys, each seen at event 3."""
    made = unbounded_state().table(("k",))
    for number in range(KEYS):
        made.admit(number, 3, 0)
    return made


def column(
    table: ColumnTable,
    regime: Regime = Regime.UNCHANGED,
    *,
    window_us: int | None = None,
    complete_at: int = 0,
    slots: tuple[int, ...] = (598, 599),
) -> Column:
    """Give a column with entries of time 1 at some slots, in a dict or in pages."""
    made = add_column(table, regime, window_us=window_us, complete_at=complete_at)
    for slot in slots:
        made.put(slot, 1)
    return made


def entries(made: Column) -> dict[int, int]:
    return {slot: made.at(slot) for slot in made.slots()}


def test_entries_come_change_and_go(table: ColumnTable, paged: bool) -> None:
    made, drawn = column(table), random.Random(1)
    there = {598: 1, 599: 1}
    assert (made.few is None) is paged
    for number in range(2_000):
        slot = drawn.randrange(KEYS)
        match drawn.choice(("put", "close", "keep", "keep")):
            case "put" if slot not in there:
                made.put(slot, number)
                there[slot] = number
            case "close" if slot in there and slot < 598:
                made.close(slot)
                del there[slot]
            case "keep" if slot < 598:
                time_us = drawn.choice((NEVER, number))
                made.keep(slot, time_us, number)
                there.pop(slot, None)
                if time_us != NEVER:
                    there[slot] = time_us
                assert made.ticks[slot] == number
    assert entries(made) == there
    assert made.held == len(there) == sum(table.held)
    assert [made.at(slot) for slot in range(KEYS)] == [there.get(slot, NEVER) for slot in range(KEYS)]
    assert made.at(NO_SLOT) == NEVER
    assert made.slots() == (sorted(there) if paged else list(made.few or ()))
    size = PAGE_BYTES * sum(map(bool, made.counts)) if paged else ENTRY_BYTES * len(there)
    assert made.bytes == size + TICK_BYTES * len(made.ticks)
    made.drop_all()
    assert (made.bytes, sum(table.held), table.sparse, table.dense) == (0, 0, {}, [])


def test_a_page_is_its_own_only_while_it_has_entries(table: ColumnTable, paged: bool) -> None:
    made = column(table)
    if not paged:
        assert (len(made.pages), made.counts) == (1, [])
        return
    blank = made.pages[-1]
    assert [page is blank for page in made.pages] == [True, True, False, True]
    made.put(0, 5)
    assert ([page is blank for page in made.pages], made.counts) == ([False, True, False, True], [1, 0, 2])
    made.close(0)
    assert ([page is blank for page in made.pages], made.bytes) == ([True, True, False, True], PAGE_BYTES)
    made.close(598)
    made.close(599)
    assert (made.few, len(made.pages), made.counts, made.bytes, table.dense) == ({}, 1, [], 0, [])


@pytest.mark.parametrize("regime", [Regime.UNCHANGED, Regime.SEEN])
def test_the_events_of_slots_with_an_entry_meet_the_bucket(
    table: ColumnTable, paged: bool, regime: Regime
) -> None:
    made = column(table, regime)
    made.watch(Bucket())
    assert (table.watched == [made]) is paged
    assert table.triggering.keys() == (set() if paged else {598, 599})
    made.put(7, 5)
    assert table.triggering.keys() == (set() if paged else {7, 598, 599})
    assert [made.triggers_at(slot) for slot in (6, 7)] == [False, True]
    made.close(7)
    made.keep(8, 5, 9)
    made.keep(8, NEVER, 9)
    assert table.triggering.keys() == (set() if paged else {598, 599})
    made.close(598)
    made.close(599)
    # Without entries it is a dict, and watched as such.
    assert (list(table.watched), table.triggering) == ([], {})
    made.put(9, 5)
    assert table.triggering.keys() == {9}
    made.put(10, 5)
    assert (table.watched == [made]) is paged
    made.unwatch()
    assert (list(table.watched), table.triggering, made.bucket) == ([], {}, None)
    made.put(11, 5)
    assert table.triggering == {}


def test_a_run_that_is_not_written_begins_with_the_first_event_of_a_slice(table: ColumnTable) -> None:
    made = column(table, Regime.BEGUN, complete_at=5)
    made.watch(Bucket())
    for number, tick in ((1_000, 5), (1_001, 6)):
        table.admit(number, tick, 100 + tick)
    # The slices that are as old as the column have begun no run, unless one was written.
    assert [made.began(slot) for slot in (0, 598, KEYS, KEYS + 1)] == [NEVER, 1, NEVER, 106]
    made.begin(0, 50)
    assert (made.began(0), made.past_us(0), made.at(0)) == (50, 50, 50)
    made.end(0, 7)
    assert (made.began(0), made.at(0), made.ticks, table.triggering.keys()) == (NEVER, NEVER, {0: 7}, {0})
    made.end(0, 8)
    assert (made.ticks, [len(found) for found in table.triggering.values()]) == ({0: 8}, [1])
    made.begin(0, 60)
    assert (made.began(0), made.ticks, table.triggering) == (60, {}, {})
    made.end(KEYS + 1, 8)
    assert (made.began(KEYS + 1), made.past_us(NO_SLOT)) == (NEVER, NEVER)
    made.unwatch()
    assert (list(table.watched), table.triggering) == ([], {})
    made.end(1, 9)
    assert table.triggering == {}


def test_a_stamped_memory_is_read_with_the_clock_of_its_slice(table: ColumnTable) -> None:
    made = column(table, Regime.STAMPED, window_us=1_000, complete_at=3)
    # Nothing has happened since event 3, up to which the column is complete.
    assert [made.past_us(slot) for slot in (0, 598)] == [NEVER, 1]
    for slot in (0, 598):
        table.enter({"k": slot}, {}, 70, 7)
    table.leave()
    assert [made.past_us(slot) for slot in (0, 598, 599)] == [70, 70, 1]
    assert [made.until_us(slot) for slot in (0, 1, 599)] == [1_070, NEVER, 1_001]
    made.keep(0, NEVER, 7)
    made.keep(598, 1, 7)
    assert [made.past_us(slot) for slot in (0, 598)] == [NEVER, 1]
    assert [made.stamped_at(598, 90, tick) for tick in (7, 8)] == [1, 90]
    assert [made.stamped_at(599, 90, tick) for tick in (3, 4)] == [1, 90]


def test_without_expiry_what_is_remembered_lasts(table: ColumnTable) -> None:
    made = column(table)
    assert [made.until_us(slot) for slot in (0, 598)] == [NEVER, FOREVER]
    lasting = column(table, window_us=FOREVER)
    assert lasting.until_us(598) == FOREVER


@pytest.mark.parametrize("at_once", [False, True])
def test_what_has_expired_is_dropped(table: ColumnTable, paged: bool, *, at_once: bool) -> None:
    made, lasting = column(table, window_us=100), column(table)
    for slot in range(20):
        made.put(slot, 10 * slot)
        lasting.put(slot, 0)
    if at_once and paged:
        # The edge is at 50, which has not expired.
        for number in range(PAGES):
            made.drop_expired_of(number, 150)
            lasting.drop_expired_of(number, 150)
    else:
        for slot in range(KEYS):
            made.drop_expired(slot, 150)
            lasting.drop_expired(slot, 150)
    assert entries(made) == {slot: 10 * slot for slot in range(5, 20)}
    assert (made.held, lasting.held) == (15, 22)
    assert [table.held[slot] for slot in (4, 5, 598)] == [1, 2, 1]
    if paged:
        assert (made.counts, made.bytes) == ([15, 0, 0], PAGE_BYTES)
        made.drop_expired_of(0, 10_000)
        assert (made.few, made.bytes, made.held) == ({}, 0, 0)
        assert sum(table.held) == 22


def test_a_clocked_entry_forgets_its_event_once_the_slice_has_a_later_one(table: ColumnTable) -> None:
    made = column(table, Regime.STAMPED, window_us=100)
    made.keep(0, 5, 3)
    made.keep(1, 5, 2)
    for slot in (0, 1):
        made.drop_expired(slot, 50)
    assert (made.ticks, entries(made)) == ({0: 3}, {0: 5, 1: 5, 598: 1, 599: 1})


def test_what_older_rules_remembered_is_dropped_up_to_a_time(table: ColumnTable) -> None:
    made = column(table)
    for slot in range(5):
        made.put(slot, slot)
    made.drop_until(2, 7)
    assert (entries(made), made.complete_at) == ({3: 3, 4: 4}, 0)
    stamped = column(table, Regime.STAMPED, complete_at=2)
    for slot in range(5):
        stamped.keep(slot, slot, slot)
    stamped.drop_until(2, 3)
    assert (entries(stamped), stamped.ticks, stamped.complete_at) == ({3: 3, 4: 4}, {4: 4}, 3)
    stamped.drop_until(2, 1)
    assert stamped.complete_at == 3
    assert table.begun_at == 0, "no run is complete up to any event"


def test_a_column_is_restored_as_it_was(table: ColumnTable, paged: bool) -> None:
    made = column(table, Regime.BEGUN, complete_at=5)
    made.end(0, 7)
    again = Column(table, None, 0)
    again.regime = Regime.BEGUN
    pages = {number: (made.pages[number][:], count) for number, count in enumerate(made.counts) if count}
    before, table.begun_at = table._total.bytes, 0
    again.restore(None if made.few is None else dict(made.few), pages, dict(made.ticks), 9)
    assert (entries(again), again.ticks, again.complete_at) == (entries(made), made.ticks, 9)
    assert (again.held, again.counts, again.bytes) == (made.held, made.counts, made.bytes)
    assert (again in table.dense, table.begun_at) == (paged, 9)
    assert table._total.bytes == before + made.bytes
    assert all(again in table.sparse.at(slot) for slot in {*(again.few or ()), 0})
    if paged:
        assert all(again not in table.sparse.at(slot) for slot in (598, 599))


def test_an_entry_of_a_new_key_admits_it(table: ColumnTable) -> None:
    made: Any = column(table)
    assert made.open("new", NO_SLOT, 70, 7) == KEYS == table.slot
    assert (made.at(KEYS), table.keys[KEYS], table.seen[KEYS]) == (70, "new", 7)
    assert made.open(5, 5, 70, 7) == 5
    assert (made.at(5), table.live) == (70, KEYS + 1)


def test_few_entries_of_many_keys_are_a_dict_and_then_pages(
    table: ColumnTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "PAGED_FROM", 4)
    monkeypatch.setattr(columns, "SPARSE_SHARE", 100)
    made = column(table, slots=())
    kinds = []
    for slot in range(8):
        made.put(slot, 1)
        kinds.append(made.few is None)
    # With 600 keys, 6 entries are one in a hundred.
    assert kinds == [*[False] * 6, True, True]
    assert table.sparse == {}
