"""When keys expire and which are evicted, held to plain searches over all keys."""

import random
from array import array
from typing import Any

import pytest

from engine.evaluation.times import FOREVER, NEVER, Regime
from engine.evaluation.requirements import TRAITS
from engine.evaluation.state.removal import incremental_expiry
from engine.evaluation.state.removal.eviction import DROPPED_AT_ONCE, Evicted
from engine.evaluation.state.removal.expiry import (
    drop_expired,
    forget,
    has_expired,
    page_until_us,
    until_us,
)
from engine.evaluation.state.removal.incremental_expiry import bloated, expire_some
from engine.evaluation.slices.bounds.minima import Minima
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage import columns
from engine.evaluation.state.storage.columns import Column, ColumnTable
from tests.audit import column_bytes
from tests.stores import add_column, unbounded_state

KEYS = 600
REGIMES = (Regime.UNCHANGED, Regime.STAMPED, Regime.BEGUN)


def filled(state: State, drawn: random.Random, *regimes: Regime, keys: int = KEYS) -> ColumnTable:
    """Give a table whose keys have been seen at any of a thousand microseconds, some of them freed again."""
    table = state.table((f"k{len(state.tables)}",))
    for regime in regimes:
        for window_us in (None, 100, 300):
            add_column(table, regime, window_us=window_us, complete_at=5)
    seen_us = [drawn.randrange(1_000) for _ in range(keys)]
    for number in range(keys):
        table.admit(number, number + 1, seen_us[number])
    for made in table.columns:
        for slot in drawn.sample(range(keys), keys // 4):
            made.put(slot, drawn.randrange(seen_us[slot] + 1))
        if made.clocked:
            for slot in drawn.sample(range(keys), keys // 8):
                made.keep(slot, drawn.choice((NEVER, drawn.randrange(seen_us[slot] + 1))), table.seen[slot])
    for slot in drawn.sample(range(keys), keys // 10):
        forget(table, slot)
    return table


def lasts_until_us(table: ColumnTable, slot: int) -> int:
    """Search all columns for the last time at which a key has not expired."""
    if table.keys[slot] is None:
        return FOREVER
    lasting = [NEVER]
    for column in table.columns:
        time_us = column.past_us(slot)
        if time_us != NEVER:
            window_us = column.expires_after_us
            lasting.append(FOREVER if window_us is None else time_us + window_us)
    return max(lasting)


@pytest.fixture
def state() -> State:
    return unbounded_state()


@pytest.mark.parametrize("paged_from", [1, 1 << 40])
@pytest.mark.parametrize("regimes", [REGIMES[:1], REGIMES[1:2], REGIMES])
def test_a_key_expires_when_none_of_its_memories_counts_any_more(
    state: State, regimes: tuple[Regime, ...], paged_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "PAGED_FROM", paged_from)
    table = filled(state, random.Random(paged_from), *regimes)
    expected = [lasts_until_us(table, slot) for slot in range(KEYS)]
    assert [until_us(table, slot) for slot in range(KEYS)] == expected
    assert [each for number in range(3) for each in page_until_us(table, number)] == expected
    for now_us in (min(each for each in expected if each > NEVER), 500, 501):
        assert [has_expired(table, slot, now_us) for slot in range(KEYS)] == [
            each < now_us for each in expected
        ]
    # Keys without any memory have expired before any time.
    assert NEVER in expected or Regime.STAMPED in regimes


@pytest.mark.parametrize("paged_from", [1, 1 << 40])
@pytest.mark.parametrize("regimes", [REGIMES[:1], REGIMES[1:2], REGIMES])
def test_expired_keys_of_a_page_are_dropped_with_all_that_they_held(
    state: State, regimes: tuple[Regime, ...], paged_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "PAGED_FROM", paged_from)
    table = filled(state, random.Random(7), *regimes)
    now_us = 700
    left = [slot for slot in range(KEYS) if table.keys[slot] is not None]
    for number in range(3):
        lasting = [slot for slot in left if lasts_until_us(table, slot) >= now_us]
        left = [slot for slot in left if slot >> 8 != number or slot in lasting]
        drop_expired(table, number, now_us)
        assert [slot for slot in range(KEYS) if table.keys[slot] is not None] == left
    for column in table.columns:
        assert column.bytes == column_bytes(column)
        window_us = column.expires_after_us
        for slot in column.slots():
            assert window_us is None or column.at(slot) >= now_us - window_us
    assert all(
        bool(held) is any(column.at(slot) != NEVER for column in table.columns)
        for slot, held in enumerate(table.held)
    )


def test_a_key_that_is_forgotten_leaves_nothing(state: State) -> None:
    table = filled(state, random.Random(3), *REGIMES)
    for slot in range(KEYS):
        if table.keys[slot] is not None:
            forget(table, slot)
    assert (state.live, state.bytes, table.sparse, sum(table.held)) == (0, 0, {}, 0)
    assert all(column.held == 0 and not column.ticks for column in table.columns)


def test_each_step_visits_another_page_until_all_have_been_visited(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited = []

    def noted(_: ColumnTable, page: int, __: int) -> None:
        visited.append(page)

    table = state.table(("k",))
    column = Column(table, None, 0)
    table.columns.append(column)
    for number in range(KEYS):
        column.put(table.admit(number, 1, 0), 0)
    monkeypatch.setattr(incremental_expiry, "drop_expired", noted)
    # Nothing has expired, so only every fourth step visits a page.
    for number in range(12):
        expire_some(table, 0, number)
    assert sorted(visited) == [0, 1, 2]
    # Now the sample of a page has expired: each step that comes to it visits it.
    visited.clear()
    column.close(256 + 128)
    for number in range(12):
        expire_some(table, 0, number)
    assert sorted(visited) == [0, 1, 1, 1, 1, 2]
    # The last page is short, so its sample is the last slot.
    visited.clear()
    column.close(KEYS - 1)
    for number in range(12):
        expire_some(table, 0, number)
    assert sorted(visited) == [0, 1, 1, 1, 1, 2, 2, 2, 2]
    visited.clear()
    expire_some(state.table(("empty",)), 0, 0)
    assert visited == []


def test_free_pages_at_the_end_are_dropped_some_at_a_time(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental_expiry, "_PAGES_DROPPED", 2)
    monkeypatch.setattr(incremental_expiry, "SHRUNK_FROM", 1_000)
    table = filled(state, random.Random(6), *REGIMES, keys=1_100)
    assert not bloated(table)
    for slot in range(300, 1_100):
        if table.keys[slot] is not None:
            forget(table, slot)
    assert bloated(table)
    lengths = []
    for _ in range(3):
        expire_some(table, 0, 0)
        lengths.append(len(table.keys))
        arrays: list[Any] = [table.seen, table.held, table.times, table.first_ticks, table.first_times]
        assert {len(each) for each in [*arrays, table.free_slots.taken]} == {len(table.keys)}
    assert lengths == [768, 512, 512]
    assert not bloated(table)


def test_a_last_page_of_one_slot_and_the_first_page_can_be_dropped(state: State) -> None:
    table = state.table(("k",))
    for number in range(257):
        table.admit(number, 1, 0)
    incremental_expiry._drop_free_pages(table)
    assert len(table.keys) == 257
    for slots, length in (([256], 256), (range(255), 256), ([255], 0)):
        for slot in slots:
            table.free(slot)
        incremental_expiry._drop_free_pages(table)
        assert len(table.keys) == length
    incremental_expiry._drop_free_pages(table)


def evicted(state: State, now_us: int) -> tuple[Evicted, list[tuple[str, Any]]]:
    """Hold the bounds, and give the keys that have gone."""
    before = {
        (str(path[0]), key) for path, table in state.tables.items() for key in table.keys if key is not None
    }
    found = state.eviction.hold(now_us)
    after = {
        (str(path[0]), key) for path, table in state.tables.items() for key in table.keys if key is not None
    }
    return found, sorted(before - after)


@pytest.mark.parametrize("bound", ["number", "bytes"])
def test_expired_keys_go_first_and_then_the_longest_unseen(bound: str) -> None:
    drawn = random.Random(bound)
    state = unbounded_state()
    tables = [filled(state, drawn, Regime.UNCHANGED, keys=60) for _ in range(2)]
    for table in tables:
        for slot in range(60):
            if table.keys[slot] is not None:
                table.seen[slot] = drawn.randrange(1_000_000)
    now_us, total = 900, Evicted(0, 0)
    while state.live > 20:
        keys = [(table, slot) for table in tables for slot in range(60) if table.keys[slot] is not None]
        expired = [each for each in keys if lasts_until_us(*each) < now_us]
        first_to_expire = min(expired, key=lambda each: lasts_until_us(*each), default=None)
        # Of one expiry, whichever comes first in the table goes first.
        expected = first_to_expire or min(keys, key=lambda each: each[0].seen[each[1]])
        name = (str(expected[0].path[0]), expected[0].keys[expected[1]])
        if bound == "number":
            state.live_max = state.live - 1
        else:
            state.bytes_max = state.keyed_bytes - 1
        found, gone = evicted(state, now_us)
        assert gone == [name]
        assert not state.due
        total = Evicted(total.by_number + found.by_number, total.by_bytes + found.by_bytes)
        counted = Evicted(1, 0) if bound == "number" else Evicted(0, 1)
        assert found == (Evicted(0, 0) if expired else counted)
    assert max(total) > 5
    assert state.tracking


def test_far_from_the_bounds_no_key_is_tracked() -> None:
    state = State(800, 1 << 40, TRAITS)
    table = filled(state, random.Random(8), Regime.UNCHANGED)
    assert state.live == 540
    for number in range(100):
        state.eviction.hold(0)
        assert not state.tracking
        table.admit(("some", number), 1, 0)
    for number in range(61):
        table.admit(("more", number), 1, 0)
    state.eviction.hold(0)
    # Seven eighths of the bound are passed.
    assert state.tracking
    assert state.live == 701
    for slot in range(101):
        if table.keys[slot] is not None:
            forget(table, slot)
    state.eviction.hold(0)
    # Three quarters are not reached.
    assert state.tracking is (state.live > 600)
    while state.live > 600:
        forget(table, next(slot for slot, key in enumerate(table.keys) if key is not None))
    state.eviction.hold(0)
    assert not state.tracking
    assert table.log == []


def test_many_keys_past_a_lowered_bound_go_a_few_at_a_time() -> None:
    state = unbounded_state()
    filled(state, random.Random(9), Regime.UNCHANGED)
    state.live_max = 100
    left = []
    for _ in range(3):
        found = state.eviction.hold(0)
        left.append((state.live, state.due))
        assert max(found) <= DROPPED_AT_ONCE
    assert left == [(540 - 256, True), (100, False), (100, False)]


def test_without_keys_no_bound_is_passed() -> None:
    state = State(1 << 40, 100, TRAITS)
    state.weigh(1_000)
    assert state.due
    assert state.eviction.hold(0) == Evicted(0, 0)
    assert not state.due


def test_a_page_lasts_as_long_as_its_keys_whatever_other_pages_have(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "PAGED_FROM", 1)
    monkeypatch.setattr(columns, "SPARSE_SHARE", 1 << 40)
    table = filled(state, random.Random(1))
    for slots in ((300, 301), (5, 6), (7, 302)):
        made = Column(table, 100, 0)
        table.columns.append(made)
        for slot in slots:
            made.put(slot, slot)
    assert len(table.dense) == 3
    lasting = [each for number in range(3) for each in page_until_us(table, number)]
    assert lasting == [lasts_until_us(table, slot) for slot in range(KEYS)]


@pytest.mark.parametrize("free", [0, 10])
def test_keys_without_entries_go_however_many_others_have_one(state: State, free: int) -> None:
    table = state.table(("k",))
    made = Column(table, None, 0)
    table.columns.append(made)
    for number in range(256):
        table.admit(number, 1, 0)
    for slot in range(free):
        table.free(slot)
        made.put(100 + slot, 0)
    drop_expired(table, 0, 0)
    assert [slot for slot in range(256) if table.keys[slot] is not None] == [*range(100, 100 + free)]


def test_a_bound_that_is_just_reached_is_held(state: State) -> None:
    filled(state, random.Random(2), Regime.UNCHANGED)
    state.live_max, state.bytes_max = state.live, state.keyed_bytes
    live = state.live
    assert state.eviction.hold(1_000_000) == Evicted(0, 0)
    assert (state.live, state.due) == (live, False)


def test_among_many_pages_the_longest_unseen_key_goes(state: State) -> None:
    drawn = random.Random(3)
    table = state.table(("k",))
    table.columns.append(Column(table, None, 0))
    for number in range(2_000):
        table.columns[0].put(table.admit(number, 10 + number, 0), 0)
    for slot in drawn.sample(range(2_000), 5):
        table.seen[slot] = drawn.randrange(1, 10)
    # It is on the last page.
    table.seen[1_900] = 0
    for number in range(40):
        state.live_max = state.live - 1
        first = min((seen, slot) for slot, seen in enumerate(table.seen))[1]
        gone = evicted(state, 0)[1]
        assert gone == [("k", first)]
        # What happens meanwhile is logged, and read at the next turn.
        table.enter({"k": 1_500 + number}, {}, 0, 5_000 + number)
        table.leave()
        state.live_max = 1 << 40
        assert table.log == [first, 1_500 + number]
        state.tracking = True


@pytest.mark.parametrize("renewed", ["renew", "renew_later"])
def test_what_no_event_changed_is_tracked_anew(state: State, renewed: str) -> None:
    table = filled(state, random.Random(4))
    made = Column(table, 100, 0)
    table.columns.append(made)
    for slot in range(KEYS):
        if table.keys[slot] is not None:
            made.put(slot, 1_000)
    state.live_max = state.live
    state.eviction.hold(0)
    assert state.tracking
    slot = next(slot for slot in range(200, KEYS) if table.keys[slot] is not None)
    key = table.keys[slot]
    made.keep(slot, 1, 0)
    if renewed == "renew":
        state.eviction.renew()
    else:
        state.eviction.renew_later(table.path)
    state.live_max -= 1
    assert evicted(state, 500)[1] == [(str(table.path[0]), key)]


def test_a_detector_that_is_near_a_bound_tracks_all_keys_at_once(state: State) -> None:
    table = filled(state, random.Random(5), Regime.UNCHANGED)
    state.eviction.resume()
    assert not state.tracking
    state.live_max = state.live
    state.eviction.resume()
    assert state.tracking
    assert state.eviction._tracked[table.path]._pages == 3
    state.eviction.hold(0)
    table.admit("more", 1, 0)
    assert len(table.log) == 1
    state.live_max = state.live
    state.eviction.hold(0)
    assert table.log == []
    state.live_max = 10 * state.live
    state.eviction.renew()
    assert not state.tracking


def test_the_least_of_very_many_numbers_is_found_whatever_has_changed() -> None:
    drawn = random.Random(6)
    for length in (1, 127, 128, 129, 2_048, 2_049, 33_000):
        numbers = array("q", [FOREVER]) * length
        minima = Minima(numbers)
        assert minima.least() == (FOREVER, -1)
        for number in range(150):
            for place in drawn.choices(range(len(numbers)), k=drawn.choice((1, 5))):
                before = numbers[place]
                numbers[place] = drawn.choice((drawn.randrange(20), drawn.randrange(10**6), FOREVER))
                if numbers[place] < before or drawn.random() < 0.5:
                    minima.changed(place)
            if number % 50 == 49:
                more = drawn.choice((1, 200, 3_000))
                first = len(numbers)
                numbers.extend(drawn.randrange(10**6) for _ in range(more))
                minima.look(first, first + more)
                minima.changed(len(numbers) + 300)
            least = min(numbers)
            expected = (FOREVER, -1) if least == FOREVER else (least, numbers.index(least))
            assert minima.least() == expected
            if least < FOREVER:
                numbers[expected[1]] = least + drawn.choice((1, 10**6))
