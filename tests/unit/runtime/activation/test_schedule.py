"""When a save, a sync or a passivation is due, by times that the tests give."""

from pathlib import Path

import pytest

from engine.runtime.activation.schedule import Schedule
from engine.runtime.contract.requests.calls import Reply
from engine.runtime.contract.settings import RuntimeSettings

SETTINGS = RuntimeSettings(
    data=Path(),
    passivate_after_s=100,
    turn_s=2,
    journal_sync_interval_s=1,
    snapshot_interval_s=60,
    snapshot_journal_bytes=1000,
    retry_s=5,
)
LONG, SHORT, CLEAN = Reply([], journal_bytes=1000), Reply([], journal_bytes=1), Reply([])


@pytest.fixture
def schedule() -> Schedule:
    """Of a detector that was activated at 10 s."""
    made = Schedule(SETTINGS)
    made.note_activation(9.0, 10.0, read_only=False)
    return made


def passivates(schedule: Schedule, now_s: float, *, busy: bool = False, forking: bool = False) -> bool:
    return schedule.should_passivate(now_s, busy=busy, forking=forking)


def test_a_detector_without_a_batch_is_passivated_only_when_requests_had_time_to_come(schedule):
    assert schedule.next_due_s() == 110
    schedule.room_wanted = True
    assert not passivates(schedule, 10.9)
    assert schedule.next_due_s() == 11
    assert passivates(schedule, 11)


def test_a_detector_is_passivated_when_it_was_not_used_for_long(schedule):
    schedule.note_batch(CLEAN, 20.0)
    assert schedule.next_due_s() == 120
    assert not passivates(schedule, 119)
    assert passivates(schedule, 120)
    assert not passivates(schedule, 120, busy=True)


def test_a_busy_detector_gives_way_after_its_turn_to_one_that_waits(schedule):
    schedule.room_wanted = True
    assert not passivates(schedule, 12, busy=True)
    schedule.note_batch(CLEAN, 11.0)
    assert not passivates(schedule, 11.9, busy=True)
    assert passivates(schedule, 12, busy=True)
    assert not passivates(schedule, 12, busy=True, forking=True)
    schedule.saving = True
    assert not passivates(schedule, 12, busy=True)


def test_a_journal_is_saved_after_the_interval_or_when_it_is_long(schedule):
    schedule.note_batch(CLEAN, 20.0)
    assert not schedule.has_journal
    schedule.note_batch(SHORT, 20.0)
    schedule.note_batch(SHORT, 30.0)
    assert schedule.has_journal
    assert schedule.next_due_s() == 80
    assert not schedule.should_save(79)
    assert schedule.should_save(80)
    schedule.note_batch(LONG, 40.0)
    assert schedule.should_save(40)


def test_a_journal_from_which_a_file_is_missing_is_saved_at_once(schedule):
    schedule.note_batch(Reply([], journal_bytes=1, missing="a file"), 20.0)
    assert schedule.should_save(20)


def test_while_a_snapshot_is_written_the_next_one_waits(schedule):
    schedule.note_batch(LONG, 20.0)
    schedule.note_save_begun()
    schedule.saving = True
    schedule.note_batch(LONG, 21.0)
    assert not schedule.should_save(1000)
    assert schedule.next_due_s() == 121
    schedule.saving = False
    assert schedule.next_due_s() == 81
    assert not schedule.should_save(80)
    assert schedule.should_save(81)


def test_a_snapshot_that_failed_is_tried_again_later_however_long_the_journal(schedule):
    schedule.note_batch(LONG, 20.0)
    schedule.note_save_begun()
    schedule.note_save_failed(20.0)
    schedule.note_batch(LONG, 79.0)
    assert not schedule.should_save(79)
    assert schedule.should_save(80)
    schedule.room_wanted = True
    assert not passivates(schedule, 24)
    assert passivates(schedule, 25)


def test_an_unsynced_journal_is_synced_after_the_interval(schedule):
    unsynced = Reply([], unsynced=True)
    schedule.note_batch(unsynced, 20.0)
    schedule.note_batch(unsynced, 20.5)
    assert schedule.next_due_s() == 21
    assert not schedule.should_sync(20.9)
    assert schedule.should_sync(21)
    schedule.note_sync()
    assert not schedule.should_sync(1000)


@pytest.mark.parametrize(("took_s", "wait_s"), [(1.0, 5.0), (2.0, 8.0)])
def test_a_read_only_detector_is_activated_again_after_a_time_that_its_activation_pays_for(took_s, wait_s):
    schedule = Schedule(SETTINGS)
    schedule.note_activation(10.0 - took_s, 10.0, read_only=True)
    assert not schedule.should_reactivate(9.9 + wait_s)
    assert schedule.should_reactivate(10.0 + wait_s)


def test_one_that_is_not_read_only_is_not_activated_again(schedule):
    assert not schedule.should_reactivate(1e9)
