"""What is written and synced when, and what is said where the disk fails or is full."""

import errno
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector import apply as apply_module
from snapshots.errors import (
    Fenced,
    StorageError,
    SyncFailed,
    WriteFailed,
)
from tests.local_runtime.owners import ONE, codes, event
from tests.unit.runtime.detector.executor.requests import add, answer, fired


def test_a_batch_is_one_record_and_one_sync(actor, files):
    add(actor)
    before = len(files.calls)
    actor.handle([event(a=1), event(2000, a=1), ops.add_rule("r", "b == 1"), ops.rules(), ops.evaluate(b"{")])
    calls = files.calls[before:]
    assert calls.count("write") == 1
    assert [call for call in calls if call.startswith("sync")] == ["sync_data"]
    assert calls.index("write") < calls.index("sync_data") < calls.index("is_named"), "the owner comes last"


def test_one_short_event_reserves_one_block_and_gives_nothing_back(make, actor, files):
    add(actor)
    actor.passivate()
    other = make()
    files.calls.clear()
    other.activate(ONE, 2)
    fired(other, a=1)
    other.passivate()
    assert files.calls.count("reserve") == 1
    assert "release" not in files.calls


def test_a_state_that_a_crash_left_behind_never_answers_and_what_came_before_it_does(
    make, actor, monkeypatch
):
    def crash(detector, body):
        if b"crash" in body:
            detector.clock_us = 999_999_999
            raise RuntimeError("an engine that breaks")
        return evaluate_body(detector, body)

    rule_id = add(actor, "once a == 1")
    evaluate_body = apply_module.evaluate_body
    monkeypatch.setattr(apply_module, "evaluate_body", crash)
    reply = actor.handle([event(a=1), event(crash=1), event(a=2)])
    assert len(reply.answers) == 1
    assert reply.crash is not None
    assert "an engine that breaks" in reply.crash.detail
    assert len(reply.crash.reference) == 12
    with pytest.raises(AssertionError):
        actor.handle([event(a=3)])
    other = make()
    assert other.activate(ONE, 2).records == 2
    assert fired(other, 1001, a=2) == [rule_id]


def test_nothing_is_saved_while_nothing_has_changed(actor, files):
    assert not actor.begin_saving()
    actor.handle([ops.rules(), ops.rule("none")])
    assert not actor.begin_saving()
    fired(actor, a=1)
    assert actor.begin_saving()
    actor.finish_saving()
    assert files.calls.count("rename") == 1
    assert not actor.begin_saving()


def test_a_snapshot_is_of_the_moment_at_which_it_was_begun(make, actor):
    rule_id = add(actor, "once a == 1")
    actor.begin_saving()
    fired(actor, 1000, a=1)
    actor.finish_saving()
    other = make()
    assert other.activate(ONE, 2).records == 1
    assert fired(other, 2000, a=2) == [rule_id]


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_snapshot_that_fails_costs_nothing_that_was_answered(make, actor, files, call):
    rule_id = add(actor)
    actor.begin_saving()
    files.fail_next(call)
    with pytest.raises(StorageError):
        actor.finish_saving()
    files.fails_at = None
    assert fired(actor, a=1) == [rule_id]
    assert actor.begin_saving()
    actor.finish_saving()
    other = make()
    other.activate(ONE, 2)
    assert fired(other, a=1) == [rule_id]


@pytest.mark.parametrize(("call", "error"), [("write", WriteFailed), ("sync_data", SyncFailed)])
def test_a_journal_that_fails_is_the_end_of_the_detector_here_and_of_nothing_that_was_answered(
    make, actor, files, call, error
):
    rule_id = add(actor, "once a == 1")
    files.fail_next(call)
    with pytest.raises(error):
        actor.handle([event(1000, a=1)])
    files.fails_at = None
    assert actor.detector_id is None
    other = make()
    other.activate(ONE, 2)
    # With a sync that failed the event may be there or not.
    assert fired(other, 2000, a=2) in ([[]] if call == "write" else [[], [rule_id]])


def test_what_a_later_owner_has_not_seen_was_never_answered(make, actor):
    rule_id = add(actor, "once a == 1")
    other = make()
    other.activate(ONE, 2)
    with pytest.raises(Fenced):
        actor.handle([event(2000, a=1)])
    assert actor.detector_id is None
    assert fired(other, 2000, a=2) == []
    third = make()
    third.activate(ONE, 3)
    assert fired(third, 3000, a=2) == []
    assert fired(third, 4000, a=1) == [rule_id]


@pytest.mark.parametrize(("sync", "there"), [("interval", True), ("off", False)])
def test_less_may_be_asked_of_evaluations_and_never_of_rules(make, files, sync, there):
    actor = make(journal_sync=sync)
    actor.activate(ONE, 1)
    rule_id = add(actor, "once a == 1")
    before = len(files.calls)
    reply = actor.handle([event(1000, a=1)])
    assert "sync_data" not in files.calls[before:]
    assert (reply.unsynced, reply.unsaved) == (there, not there)
    other = make(journal_sync=sync)
    other.activate(ONE, 2)
    assert fired(other, 2000, a=2) == ([rule_id] if there else [])


def test_without_a_journal_of_events_snapshots_hold_them(make):
    actor = make(journal_sync="off")
    actor.activate(ONE, 1)
    rule_id = add(actor, "once a == 1")
    for epoch, value in ((2, 1), (3, 2)):
        fired(actor, 1000, a=value)
        actor.passivate()
        actor.activate(ONE, epoch)
    fired(actor, 1000, a=2)
    changed = answer(actor, ops.change_rule(rule_id, name="new"))
    other = make(journal_sync="off")
    other.activate(ONE, 4)
    shown = answer(other, ops.rule(rule_id))
    assert {name: shown[name] for name in changed} == changed
    assert fired(other, 2000, a=2) == [rule_id]


def test_without_a_journal_a_snapshot_that_fails_is_made_again_at_passivation(make, files):
    actor = make(journal_sync="off")
    actor.activate(ONE, 1)
    rule_id = add(actor, "once a == 1")
    fired(actor, 1000, a=1)
    assert actor.begin_saving()
    files.fail_next("rename")
    with pytest.raises(StorageError):
        actor.finish_saving()
    actor.passivate()
    other = make(journal_sync="off")
    other.activate(ONE, 2)
    assert fired(other, 2000) == [rule_id]


def test_a_detector_that_is_dropped_leaves_no_file_open(make):
    before = len(list(Path("/proc/self/fd").iterdir()))
    actor = make()
    actor.activate(ONE, 1)
    answer(actor, event())
    actor.discard()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_batch_that_writes_names_the_journal_that_was_removed(actor, tmp_path):
    assert actor.handle([event()]).missing is None
    segment = max((tmp_path / "detectors" / ONE).glob("journal-*"))
    segment.unlink()
    assert actor.handle([ops.rules()]).missing is None
    assert actor.handle([event(2000)]).missing == str(segment)


def test_without_a_journal_of_events_a_replay_has_no_answers_to_compare(make):
    actor = make(journal_sync="off")
    actor.activate(ONE, 1)
    rule_id = add(actor, "a == 1")
    assert fired(actor, a=1) == [rule_id]
    answer(actor, ops.change_rule(rule_id, name="new"))
    assert make(journal_sync="off").activate(ONE, 2).diverged is None


def test_without_a_journal_of_events_each_snapshot_is_a_file_of_its_own(make, tmp_path):
    actor = make(journal_sync="off")
    actor.activate(ONE, 1)
    add(actor)
    names = set()
    for timestamp_ms in (1000, 2000):
        fired(actor, timestamp_ms, a=1)
        actor.begin_saving()
        actor.finish_saving()
        names.add(max(path.name for path in (tmp_path / "detectors" / ONE).glob("snapshot-*")))
    assert len(names) == 2


def test_what_an_interval_leaves_to_be_synced_is(make, files):
    actor = make(journal_sync="interval")
    actor.activate(ONE, 1)
    assert actor.handle([event()]).unsynced
    before = len(files.calls)
    actor.sync()
    assert files.calls[before:] == ["sync_data"]
    assert not actor.handle([ops.rules()]).unsynced
    actor.handle([event(2000)])
    actor.passivate()
    assert files.calls.count("sync_data") == files.calls[:before].count("sync_data") + 2, (
        "before it rests, too"
    )


def test_a_sync_that_fails_drops_the_detector(make, files):
    actor = make(journal_sync="interval")
    actor.activate(ONE, 1)
    actor.handle([event()])
    files.fail_next("sync_data")
    with pytest.raises(SyncFailed):
        actor.sync()
    assert actor.detector_id is None


def test_only_a_batch_that_writes_tells_whether_there_is_room(actor, files):
    assert actor.handle([ops.rules()]).no_room is None
    files.fail_next("reserve")
    assert "could not be stored" in actor.handle([ops.rules(), event()]).no_room
    assert actor.handle([ops.rules(), event()]).no_room == ""


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_where_no_room_can_be_had_nothing_is_done_and_that_is_said(make, actor, files, error):
    """Whatever the reason for that is. What is only read is answered."""
    files.error = error
    files.fail_next("reserve")
    files.for_good = True
    reply = actor.handle([event(1000, a=1), ops.rules(), ops.add_rule("r", "a == 1")])
    assert [type(one) for one in reply.answers] == [Refused, Done, Refused]
    for refused in (reply.answers[0], reply.answers[2]):
        assert codes(refused) == [1501]
        assert refused.entries[0].message.startswith("nothing was done, because it could not be stored: ")
    files.fails_at = None
    assert fired(actor, -290_000, a=1) == [], "the clock has not moved"


def test_where_the_journal_breaks_before_a_batch_nothing_is_done_and_that_is_said(actor, files):
    fired(actor, 0)
    actor._active.store._segment_bytes_max = actor._active.store._journal._segment_bytes_max = 1
    files.fail_next("sync_folder")
    with pytest.raises(WriteFailed, match="nothing was done, because it could not be stored"):
        actor.handle([event(1000, a=1)])
    assert actor.detector_id is None


def test_an_owner_that_learns_of_its_successor_while_it_saves_says_so_at_the_next_batch(make, actor):
    fired(actor, 1000, a=1)
    assert actor.begin_saving()
    make().activate(ONE, 2)
    with pytest.raises(Fenced):
        actor.finish_saving()
    with pytest.raises(Fenced):
        actor.handle([event(2000)])
    assert actor.detector_id is None
