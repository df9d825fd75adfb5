"""The memories of nodes without keys: cells, what triggers, and records with a single slot."""

from typing import Any

import pytest

from engine.evaluation.key_sizes import KEY_BYTES_MAX
from engine.evaluation.times import NEVER, Kind, Recorded, Regime
from engine.evaluation.state.aggregates.panes import Panes
from engine.evaluation.state.aggregates.times import Times
from engine.evaluation.state.aggregates.values import Values
from engine.evaluation.state.storage.sizes import ENTRY_BYTES, RECORD_BYTES, STEP_BYTES, VALUE_BYTES
from engine.evaluation.state.unkeyed import Globals, Keyless, most_bytes, new_records
from tests.stores import Bucket


@pytest.fixture
def cells() -> Globals:
    return Globals(lambda _: None)


def test_a_cell_that_is_dropped_is_used_again(cells: Globals) -> None:
    assert [cells.new_cell(tick) for tick in (3, 4)] == [0, 1]
    assert (cells.cells, cells.ticks) == ([NEVER, NEVER], [3, 4])
    cells.cells[0] = 50
    cells.regimes[0] = Regime.STAMPED
    cells.drop(0)
    assert (cells.cells, cells.regimes, cells.free) == ([NEVER, NEVER], {}, [0])
    assert cells.new_cell(7) == 0
    assert (cells.ticks, cells.free) == ([7, 4], [])


def test_a_stamped_cell_holds_the_time_of_the_event_before_unless_an_event_wrote_it(cells: Globals) -> None:
    stamped, other = cells.new_cell(3), cells.new_cell(3)
    cells.regimes |= {stamped: Regime.STAMPED, other: Regime.UNCHANGED}
    cells.cells[:] = [10, 20]
    cells.previous_us = 40
    assert [cells.past_us(stamped, tick) for tick in (3, 4)] == [10, 40]
    assert [cells.past_us(other, tick) for tick in (3, 4)] == [20, 20]
    assert cells.past_us(cells.new_cell(0), 4) == NEVER


@pytest.mark.parametrize("unstarted", [False, True])
def test_events_meet_the_bucket_of_a_cell_while_it_holds_a_time_or_none(
    cells: Globals, *, unstarted: bool
) -> None:
    cell, bucket = cells.new_cell(0), Bucket()
    cells.watch(cell, bucket, unstarted=unstarted)
    assert (cell in cells.triggering) is unstarted
    act, rest = cells.set_triggering, cells.set_idle
    act(cell, 5)
    assert (cells.cells[cell], dict(cells.triggering)) == (5, {cell: bucket})
    rest(cell, 6)
    assert (cells.cells[cell], dict(cells.triggering)) == (6, {})
    cells.unwatch(cell)
    assert (cells.buckets, cells.unstarted, dict(cells.triggering)) == ({}, set(), {})
    act(cell, 7)
    assert (cells.cells[cell], dict(cells.triggering)) == (7, {})
    cells.watch(cell, bucket, unstarted=unstarted)
    assert (cell in cells.triggering) is not unstarted
    cells.unwatch(cell)
    assert dict(cells.triggering) == {}


@pytest.mark.parametrize("unstarted", [False, True])
def test_a_cell_is_restored_and_triggers_as_before(cells: Globals, *, unstarted: bool) -> None:
    cell = cells.new_cell(0)
    cells.watch(cell, Bucket(), unstarted=unstarted)
    cells.restore(cell, NEVER)
    assert (cell in cells.triggering) is unstarted
    cells.restore(cell, 9)
    assert (cells.cells[cell], cell in cells.triggering) == (9, not unstarted)


def test_records_without_keys_trigger_for_every_event(cells: Globals) -> None:
    weighed: list[int] = []
    slots: Any = Keyless(weighed.append, cells)
    made: Any = new_records(Recorded(Kind.TIMES, 3, None, 2), slots)
    made.watch(bucket := Bucket())
    assert (slots.slot, dict(cells.triggering)) == (0, {})
    for now_us in range(3):
        assert made.add(None, slots.slot, now_us, 1) == 0
        assert dict(cells.triggering) == ({made: bucket} if now_us else {})
    assert sum(weighed) == made.bytes > 0
    made.close(0)
    assert (dict(cells.triggering), sum(weighed)) == ({}, 0)


@pytest.mark.parametrize(
    ("recorded", "kind", "holds"),
    [
        (Recorded(Kind.TIMES, 3, 10, 2), Times, {"most": 3, "needed": 2, "expires_after_us": 10}),
        (Recorded(Kind.VALUES, 3, None, 2), Values, {"most": 3, "needed": 2, "expires_after_us": None}),
        (Recorded(Kind.SUMS, 0, 512), Panes, {"counted": False, "width_us": 2}),
        (Recorded(Kind.MEANS, 0, 512), Panes, {"counted": True, "width_us": 2}),
    ],
)
def test_each_kind_of_record_holds_what_is_needed(
    cells: Globals, recorded: Recorded, kind: type, holds: dict[str, Any]
) -> None:
    made = new_records(recorded, Keyless(lambda _: None, cells))
    assert type(made) is kind
    assert {name: getattr(made, name) for name in holds} == holds


RECORD = ENTRY_BYTES + RECORD_BYTES


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        # It is cut at 11, or at half as many more.
        (Recorded(Kind.TIMES, 3, None), RECORD + STEP_BYTES),
        (Recorded(Kind.TIMES, 100, None), RECORD + 10 * STEP_BYTES),
        (Recorded(Kind.VALUES, 3, None), RECORD + 3 * (VALUE_BYTES + KEY_BYTES_MAX)),
        (Recorded(Kind.SUMS, 0, None), RECORD + RECORD_BYTES + 2 * STEP_BYTES),
        (Recorded(Kind.MEANS, 0, None), RECORD + RECORD_BYTES + 3 * STEP_BYTES),
        # Up to 258 panes are kept of a window.
        (Recorded(Kind.SUMS, 0, 512), RECORD + RECORD_BYTES + 2 * 17 * STEP_BYTES),
        (Recorded(Kind.MEANS, 0, 512), RECORD + RECORD_BYTES + 3 * 17 * STEP_BYTES),
    ],
)
def test_the_most_that_a_record_may_take(recorded: Recorded, expected: int) -> None:
    assert most_bytes(recorded) == expected
