"""The actor: one detector at a time, batches in order, no answer from a state that is half of one event."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done, Refused
from engine.evaluation.wire.inspecting.states import StateAsked
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Activated
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector import actor as actor_module
from engine.runtime.detector import apply as apply_module
from engine.runtime.detector.actor import DetectorActor
from engine.runtime.detector.persistence.detector_snapshot import SNAPSHOT_VERSION
from engine.runtime.detector.persistence.journal_entries import Replay
from engine.runtime.detector.persistence.replay_attempts import Poisoned
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import (
    Fenced,
    NewerFormat,
    NothingUsable,
    StorageError,
    SyncFailed,
    WriteFailed,
    WrongFolder,
)
from snapshots.folders import create_folder
from tests.faulty_files import FaultyFiles
from tests.local_runtime import newborn

ONE = "1" * 32
TWO = "2" * 32


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def make(tmp_path, files):
    for detector_id in (ONE, TWO):
        newborn(tmp_path, detector_id)

    def make(**settings: Any) -> DetectorActor:
        return DetectorActor(
            RuntimeSettings(data=tmp_path, **settings), files=files, now_us=lambda: 10_000_000_000
        )

    return make


@pytest.fixture
def actor(make):
    actor = make()
    actor.activate(ONE, 1)
    return actor


def event(timestamp_ms: float = 1000, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


def answer(actor: DetectorActor, operation: Operation) -> Any:
    (given,) = actor.handle([operation]).answers
    assert isinstance(given, Done), given
    return json.loads(given.result)


def codes(given: Any) -> list[int]:
    assert isinstance(given, Refused), given
    return [entry.code for entry in given.entries]


def test_an_activation_that_fails_leaves_no_file_open(make, files):
    before = len(list(Path("/proc/self/fd").iterdir()))
    # It writes down that the limits are others.
    actor = make(limits=Limits(keys_max=3))
    files.fail_next("write")
    with pytest.raises(StorageError):
        actor.activate(ONE, 1)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_replay_that_was_survived_leaves_no_mark(actor, make, tmp_path, monkeypatch):
    answer(actor, event(a=1))
    marked = []
    restore = actor_module.replay.restore

    def watched(*given):
        restored = restore(*given)
        marked.append((tmp_path / "detectors" / ONE / "replaying").exists())
        return restored

    monkeypatch.setattr(actor_module.replay, "restore", watched)
    # The first actor was killed, as far as the second one can tell.
    make().activate(ONE, 2)
    assert marked == [True]
    assert not (tmp_path / "detectors" / ONE / "replaying").exists()


def test_a_replay_that_raises_an_error_was_survived_too(actor, make, tmp_path, monkeypatch):
    answer(actor, event(a=1))

    def failing(recovered, answers, limits, reached):
        reached(next(iter(recovered.records)))
        raise ValueError("no process would get past this")

    monkeypatch.setattr(actor_module.replay, "restore", failing)
    with pytest.raises(ValueError, match="past this"):
        make().activate(ONE, 2)
    assert not (tmp_path / "detectors" / ONE / "replaying").exists()


def add(actor: DetectorActor, condition: str = "a == 1") -> str:
    return str(answer(actor, ops.add_rule("a rule", condition))["id"])


def fired(actor: DetectorActor, timestamp_ms: float = 1000, **fields: Any) -> list[str]:
    return [action["ruleId"] for action in answer(actor, event(timestamp_ms, **fields))["actions"]]


def test_a_rule_is_shown_as_the_interface_has_it(actor):
    rule_id = add(actor, "once within 5m a == 1")
    expected = {
        "id": rule_id,
        "condition": {
            "once_within": {"inner": {"leaf": {"fact": "a", "op": "eq", "value": 1}}, "window_secs": 300}
        },
        "detectorId": ONE,
        "enabled": True,
        "name": "a rule",
        "notify": False,
        "priority": 1,
    }
    text = "once within 5m a == 1"
    assert answer(actor, ops.rule(rule_id)) == {**expected, "text": text, "source": text}
    assert answer(actor, ops.rules()) == {"rules": [expected]}
    assert answer(actor, ops.change_rule(rule_id)) == expected


def test_integers_of_any_size_stand_in_a_rule_as_they_were_given(actor):
    huge = "9" * 4000
    rule_id = add(actor, f"a == {huge} or b == 1.0")
    (given,) = actor.handle([ops.rule(rule_id)]).answers
    assert f'"value":{huge}}}'.encode() in given.result
    assert b'"value":1.0}' in given.result


def test_the_answer_to_a_batch_is_bounded_and_what_it_has_no_room_for_can_be_sent_again(make, tmp_path):
    actor = make(limits=Limits(answer_bytes_max=60_000))
    actor.activate(ONE, 1)
    for number in range(20):
        answer(actor, ops.add_rule(f"{number} " + "n" * 200, "once a == 1"))
    left = [{"fields": {"a": 1}, "timestamp_ms": number} for number in range(100)]
    keyed = ops.evaluate_batch(json.dumps({"events": left}).encode(), "a key")
    (given,) = actor.handle([keyed]).answers
    assert len(given.result) < 60_000 + 100 * 250
    # A repeat is answered as before, and evaluates nothing more.
    assert actor.handle([keyed]).answers == [given]
    seen = 0
    for _ in range(100):
        results = answer(
            actor, ops.evaluate_batch(json.dumps({"events": left}).encode(), "a key" * (not seen))
        )
        again = []
        for one, result in zip(left, results["results"], strict=True):
            if "errors" in result:
                assert result["errors"][0]["code"] == 1400
                again.append(one)
            else:
                assert len(result["actions"]) == 20
                seen += 1
        left = again
        if not left:
            break
    assert seen == 100
    actor.discard()
    # What was refused is not in the journal's history.
    other = make(limits=Limits(answer_bytes_max=60_000))
    other.activate(ONE, 2)
    assert other._active.detector.events_seen == 100


def test_what_the_answers_of_a_reply_have_no_room_for_is_not_begun(make):
    actor = make(limits=Limits(answer_bytes_max=800))
    actor.activate(ONE, 1)
    for _ in range(4):
        add(actor)
    # Each is answered by some 500 bytes.
    batch = [event(number, a=1) for number in range(5)]
    reply = actor.handle(batch)
    assert (len(reply.answers), reply.crash) == (2, None)
    assert actor._active.detector.events_seen == 2
    assert len(actor.handle(batch[2:]).answers) == 2
    assert len(actor.handle([event(9)] * 5).answers) == 5


def test_answers_that_fill_a_reply_to_the_last_byte_end_it(make):
    actor = make()
    actor.activate(ONE, 1)
    add(actor)
    size = len(actor.handle([event(0, a=1)]).answers[0].result)
    actor.discard()
    actor = make(limits=Limits(answer_bytes_max=2 * size))
    actor.activate(ONE, 2)
    assert len(actor.handle([event(number, a=1) for number in range(1, 6)]).answers) == 2


def test_a_rule_is_changed_and_removed(actor):
    rule_id = add(actor)
    changed = answer(
        actor, ops.change_rule(rule_id, name="new", condition="a == 2", notify=True, enabled=False)
    )
    assert (changed["name"], changed["notify"], changed["enabled"]) == ("new", True, False)
    assert changed["condition"] == {"leaf": {"fact": "a", "op": "eq", "value": 2}}
    assert answer(actor, ops.remove_rule(rule_id)) == {"id": rule_id}
    assert answer(actor, ops.rules()) == {"rules": []}


@pytest.mark.parametrize(
    "operation", [ops.rule("0" * 32), ops.change_rule("0" * 32), ops.remove_rule("none")]
)
def test_an_unknown_rule_is_1201(actor, operation):
    assert codes(actor.handle([operation]).answers[0]) == [1201]


def test_an_unknown_rule_is_judged_before_the_condition_for_it(actor):
    assert codes(actor.handle([ops.change_rule("none", condition="not a condition")]).answers[0]) == [1201]


def test_a_batch_goes_on_after_an_operation_that_is_refused(actor):
    rule_id = add(actor)
    reply = actor.handle([event(a=1), ops.evaluate(b"{"), event(2000, a=1), ops.rule("none"), ops.rules()])
    assert reply.crash is None
    assert [type(one) for one in reply.answers] == [Done, Refused, Done, Refused, Done]
    assert codes(reply.answers[1]) == [1000]
    assert [rule_id] == fired(actor, 3000, a=1)


def test_a_batch_is_carried_out_in_order(actor):
    add(actor, "once a == 1")
    reply = actor.handle([event(1000, a=2), event(2000, a=1), event(3000, a=2)])
    assert [len(json.loads(one.result)["actions"]) for one in reply.answers] == [0, 1, 1]


def test_what_was_answered_is_there_when_the_detector_is_activated_again(make, actor):
    rule_id = add(actor, "once within 10s a == 1")
    fired(actor, 1000, a=1)
    assert actor.passivate() > 1_000_000
    other = make()
    assert other.activate(ONE, 2) == Activated(records=2)
    assert fired(other, 11_000, a=2) == [rule_id]
    assert fired(other, 11_001, a=2) == []


def test_what_was_answered_is_there_though_nobody_had_time_to_save_it(make, actor):
    rule_id = add(actor, "once a == 1")
    fired(actor, 1000, a=1)
    actor.handle([ops.change_rule(rule_id, name="new")])
    for epoch in (2, 3):
        other = make()
        assert other.activate(ONE, epoch).records == 3
    assert fired(other, 2000, a=2) == [rule_id]
    assert answer(other, ops.rule(rule_id))["name"] == "new"


def test_an_actor_hosts_one_detector_after_another(make, actor):
    rule_id = add(actor)
    actor.passivate()
    actor.activate(TWO, 2)
    assert answer(actor, ops.rules()) == {"rules": []}
    actor.passivate()
    actor.activate(ONE, 3)
    assert fired(actor, a=1) == [rule_id]


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


def test_what_changes_nothing_is_not_written(actor, files):
    actor.handle([ops.rules(), ops.rule("none"), ops.evaluate(b"{"), event(10_060_001)])
    assert "write" not in files.calls[-3:]
    assert not actor.begin_saving()


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


def test_a_full_disk_refuses_what_would_have_to_be_kept_and_nothing_else_until_there_is_room(
    make, actor, files
):
    rule_id = add(actor)
    files.error, files.for_good = errno.ENOSPC, True
    files.fail_next("reserve", "create")
    large = event(5000, a=1, text="x" * 200_000)
    reply = actor.handle([large, ops.rule(rule_id), ops.remove_rule(rule_id)])
    assert [type(one) for one in reply.answers] == [Refused, Done, Refused]
    assert codes(reply.answers[0]) == codes(reply.answers[2]) == [1501]
    files.fails_at = None
    assert fired(actor, 1000, a=1) == [rule_id], "nothing was done, and the clock was not moved"


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


def test_an_actor_whose_detector_has_a_later_owner_answers_nothing_more(make, actor):
    fired(actor, a=1)
    other = make()
    other.activate(ONE, 2)
    with pytest.raises(Fenced):
        make().activate(ONE, 1)
    with pytest.raises(Fenced):
        actor.handle([ops.rules()])
    assert actor.detector_id is None


def test_what_a_later_owner_has_not_seen_was_never_answered(make, actor):
    rule_id = add(actor, "once a == 1")
    other = make()
    other.activate(ONE, 2)
    with pytest.raises(Fenced):
        actor.handle([event(2000, a=1)])
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


def test_a_change_is_synced_at_once_whatever_comes_with_it(make):
    actor = make(journal_sync="interval")
    actor.activate(ONE, 1)
    assert not actor.handle([event(), ops.add_rule("r", "a == 1")]).unsynced


def test_a_detector_that_is_dropped_leaves_no_file_open(make):
    before = len(list(Path("/proc/self/fd").iterdir()))
    actor = make()
    actor.activate(ONE, 1)
    answer(actor, event())
    actor.discard()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_whole_state_includes_the_storage_and_a_part_does_not(actor):
    added = {"journal", "snapshot", "worker"}
    assert answer(actor, ops.state(StateAsked())).keys() >= added
    assert answer(actor, ops.state(StateAsked("keys"))).keys().isdisjoint(added)


def test_the_state_tells_whether_the_journal_is_synced_and_when_a_snapshot_was_saved(make):
    actor = make(journal_sync="interval")
    actor.activate(ONE, 1)
    actor.handle([event()])
    assert answer(actor, ops.state(StateAsked()))["journal"]["synced"] is False
    assert actor.begin_saving()
    actor.finish_saving()
    after = answer(actor, ops.state(StateAsked()))
    assert (after["journal"]["synced"], after["snapshot"]["saved_ms"]) == (True, 10_000_000)


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


def test_a_key_repeats_the_first_answer_whether_it_is_explained_or_not(actor, make):
    add(actor)
    body = json.dumps({"event": {"fields": {"a": 1}, "timestamp_ms": 1000}}).encode()
    explained, plain = ops.evaluate(body, "key", explained=True), ops.evaluate(body, "key")
    first = answer(actor, explained)
    assert "node" in first["actions"][0]
    assert answer(actor, plain) == answer(actor, explained) == first
    other = make()
    other.activate(ONE, 2)
    assert answer(other, plain) == first


@pytest.mark.parametrize("of", [ops.evaluate_batch, ops.evaluate_lines])
def test_where_all_events_are_refused_nothing_is_written(actor, of):
    before = actor.handle([event(9_000_000)]).journal_bytes
    late = {"fields": {}, "timestamp_ms": 1}
    body = {"event": late} if of is ops.evaluate_lines else {"events": [late]}
    reply = actor.handle([of(json.dumps(body).encode())])
    assert b'"errors"' in reply.answers[0].result
    assert reply.journal_bytes == before


def test_a_draft_is_shown_with_its_rule(actor):
    rule_id = add(actor)
    draft = answer(actor, ops.add_rule("d", "a == 2", shadow=True, draft_of=rule_id))
    shown = answer(actor, ops.rule(draft["id"]))
    assert (shown["shadow"], shown["draftOf"]) == (True, rule_id)
    assert "draftOf" not in answer(actor, ops.rule(rule_id))


def test_a_mount_that_is_not_safe_keeps_it_from_activating(tmp_path, files):
    newborn(tmp_path, ONE)
    identity = begin_folder(tmp_path)
    checked = []

    def unsafe():
        checked.append(tmp_path)
        raise OSError("another file system")

    settings = RuntimeSettings(data=tmp_path, folder_id=identity)
    actor = DetectorActor(settings, files=files, check_mount=unsafe)
    with pytest.raises(StorageError, match="another file system"):
        actor.activate(ONE, 1)
    assert checked == [tmp_path]


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


def test_a_long_journal_is_not_left_to_the_next_activation(make, actor, files):
    add(actor)
    actor.handle([event(1000 + number, text="x" * 1000) for number in range(300)])
    actor.passivate()
    assert files.calls.count("rename") == 1
    assert make().activate(ONE, 2).records == 0


def test_a_journal_in_many_pieces_is_not_left_either(make, tmp_path):
    for epoch in range(1, 40):
        actor = make()
        actor.activate(ONE, epoch)
        fired(actor, epoch)
        actor.passivate()
    assert len(list((tmp_path / "detectors" / ONE).iterdir())) < 30
    assert make().activate(ONE, 50).records <= 8


def test_limits_that_are_set_anew_hold_and_are_in_the_journal(make, actor):
    add(actor, "per k once a == 1")
    for key in range(6):
        fired(actor, 1000, k=key, a=1)
    for epoch in (2, 3):
        fewer = make(limits=Limits(keys_max=3))
        fewer.activate(ONE, epoch)
        assert fewer._active.detector.limits.keys_max == 3
        fired(fewer, 2000, k=7, a=1)
    expected = [fired(fewer, 3000, k=key) for key in range(8)]
    again = make()
    again.activate(ONE, 4)
    assert sum(map(len, expected)) == 3
    assert again._active.detector.limits == DEFAULT_LIMITS


def test_a_folder_that_is_gone_was_lost(make, tmp_path):
    shutil.rmtree(tmp_path / "detectors" / ONE)
    with pytest.raises(NothingUsable):
        make().activate(ONE, 1)


def test_an_actor_that_could_not_activate_a_detector_can_host_another(make, actor, tmp_path):
    add(actor)
    for path in (tmp_path / "detectors" / ONE).iterdir():
        path.write_bytes(b"\0" * 100)
    other = make()
    with pytest.raises(StorageError):
        other.activate(ONE, 2)
    other.activate(TWO, 3)
    assert other.detector_id == TWO


def test_an_event_too_far_ahead_of_the_clock_is_refused(actor):
    assert codes(actor.handle([event(10_060_001)]).answers[0]) == [1402]
    assert fired(actor, 10_060_000) == []


def test_a_detector_that_a_newer_program_saved_is_not_activated(make, actor, monkeypatch):
    monkeypatch.setattr("engine.runtime.detector.actor.SNAPSHOT_VERSION", SNAPSHOT_VERSION + 1)
    add(actor)
    actor.begin_saving()
    actor.finish_saving()
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match=f"version {SNAPSHOT_VERSION + 1}"):
        make().activate(ONE, 2)


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


def test_what_fails_without_a_death_is_tried_as_often_as_it_takes(make, actor, monkeypatch):
    rule_id = add(actor, "once a == 1")
    fired(actor, 1000, a=1)
    other_limits = {"limits": Limits(keys_max=3)}

    def fails(*_):
        raise StorageError("the disk has a bad day")

    # Other limits are written down when the detector is activated, and a step may meet any error.
    for place in (
        "engine.runtime.detector.actor.DetectorActor._write",
        "engine.runtime.detector.persistence.journal_entries.Replay._observe",
    ):
        monkeypatch.setattr(place, fails)
        for epoch in range(2, 6):
            with pytest.raises(StorageError, match="bad day"):
                make(**other_limits).activate(ONE, epoch if "actor" in place else 10 + epoch)
        monkeypatch.undo()
    other = make(**other_limits)
    assert other.activate(ONE, 20).records == 2
    assert fired(other, 2000, a=2) == [rule_id]


def test_a_folder_from_before_there_were_limits_in_it_has_them_from_its_first_activation_on(make, tmp_path):
    golden = Path(__file__).parents[1] / "evaluation" / "golden" / "state_2_few.msgpack"
    folder = tmp_path / "detectors" / ("3" * 32)
    create_folder(folder, golden.read_bytes(), version=2)
    first = make(limits=Limits(keys_max=6))
    first.activate(folder.name, 1)
    answers = [fired(first, 20_000 + number, k=number, a=1) for number in range(20)]
    # Under these the past of the first would have been another one.
    second = make(limits=Limits(keys_max=2))
    assert second.activate(folder.name, 2).records == 21
    assert answers
    assert second._active.detector.events_seen == first._active.detector.events_seen


def test_a_stored_pattern_is_not_held_to_a_bound_that_was_lowered(make, actor):
    rule_id = add(actor, "a matches '[a-z]{200}x'")
    lowered = {"limits": Limits(pattern_program_max=10)}
    other = make(**lowered)
    other.activate(ONE, 2)
    assert codes(other.handle([ops.add_rule("r", "a matches '[a-z]{200}x'")]).answers[0]) == [1302]
    assert fired(other, a="b" * 200 + "x") == [rule_id]
    other.handle([ops.change_rule(rule_id, name="new")])
    again = make(**lowered)
    again.activate(ONE, 3)
    assert fired(again, a="b" * 200 + "x") == [rule_id]


def test_activating_and_passivating_leaves_nothing_behind(make, tmp_path):
    for epoch in range(1, 30):
        actor = make()
        actor.activate(ONE, epoch)
        assert codes(actor.handle([event(10_060_001)]).answers[0]) == [1402]
        actor.passivate()
    assert len(list((tmp_path / "detectors" / ONE).iterdir())) <= 3


def test_an_activation_replays_few_segments_however_many_owners_wrote_one(make, tmp_path):
    replayed, at_once = [], []
    for epoch in range(1, 30):
        actor = make()
        replayed.append(actor.activate(ONE, epoch).records)
        fired(actor, epoch, a=1)
        at_once.append(actor.passivates_at_once)
        actor.passivate()
    assert replayed[:12] == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 0]
    assert [replayed[number + 1] > 0 for number in range(28)] == at_once[:28]
    assert len(list((tmp_path / "detectors" / ONE).iterdir())) <= 20


def test_deaths_at_different_records_are_no_poison(make, actor, monkeypatch):
    class Killed(BaseException):
        pass

    add(actor)
    for at in (1000, 2000, 3000):
        fired(actor, at, a=1)
    take = Replay.take
    for epoch, last in ((2, 1), (3, 2), (4, 1), (5, 3)):

        def killed(replay, told, last=last):
            if told.events_seen == last:
                raise Killed
            take(replay, told)

        monkeypatch.setattr(Replay, "take", killed)
        with pytest.raises(Killed):
            make().activate(ONE, epoch)
    monkeypatch.undo()
    assert make().activate(ONE, 6).records == 4


def test_an_event_that_diverges_when_it_is_taken_again_sets_the_detector_aside(make, actor, monkeypatch):
    add(actor)
    fired(actor, 1000, a=1)
    monkeypatch.setattr(
        "engine.runtime.detector.persistence.journal_entries.Replay._observe", lambda *_: None
    )
    with pytest.raises(Poisoned, match="Diverged"):
        make().activate(ONE, 2)


def test_limits_that_an_older_snapshot_does_not_tell_are_told_before_anything_depends_on_them(make, tmp_path):
    shutil.rmtree(tmp_path / "detectors" / ONE)
    # Of nothing, version 2 of a detector's document looks as version 3 does.
    create_folder(tmp_path / "detectors" / ONE, Detector().dump(), version=2)
    actor = make()
    actor.activate(ONE, 1)
    fired(actor, 1_000_000)
    fired(actor, 1_000_000 - DEFAULT_LIMITS.late_ms_max)
    stricter = make(limits=Limits(late_ms_max=1))
    assert stricter.activate(ONE, 2).records == 3
    assert codes(stricter.handle([event(999_000)]).answers[0]) == [1402]


def test_limits_that_were_lowered_below_what_is_stored_undo_nothing_of_it(make, actor):
    long = add(actor, "a matches '(abc|de+f){50}'")
    add(actor, "per u (once b == 1) and c == 1")
    actor.handle([event(1000 + number, u=number, b=1) for number in range(40)])
    actor.discard()
    names = (
        "text_bytes_max",
        "nodes_max",
        "depth_max",
        "pattern_program_max",
        "rules_max",
        "batch_events_max",
    )
    lower = make(limits=Limits(keys_max=5, **dict.fromkeys(names, 1)))
    lower.activate(ONE, 2)
    assert fired(lower, 2000, a="abc" * 50) == [long]
    lower.handle([event(2000 + number, u=number, c=1) for number in range(40)])
    for epoch, begins in ((3, True), (4, False)):
        if begins:
            lower.begin_saving()
            lower.finish_saving()
        lower.discard()
        lower = make()
        lower.activate(ONE, epoch)
        assert fired(lower, 3000 + epoch, a="abc" * 50) == [long]


def test_however_often_a_detector_is_activated_for_nothing_its_folder_stays_small(make, actor, tmp_path):
    fired(actor, 1_000_000, a=1)
    actor.passivate()
    for epoch in range(2, 40):
        other = make()
        other.activate(ONE, epoch)
        assert codes(other.handle([event(1)]).answers[0]) == [1402]
        other.passivate()
        assert len(list((tmp_path / "detectors" / ONE).iterdir())) < 20


def test_a_clock_that_is_set_back_does_not_keep_answers_for_longer_than_twice_their_time(tmp_path):
    newborn(tmp_path, ONE)
    clock_us = [10**12]
    settings = RuntimeSettings(data=tmp_path, answers_kept_s=1, answers_kept_bytes_max=1)
    actor = DetectorActor(settings, now_us=lambda: clock_us[0])
    actor.activate(ONE, 1)
    first, second = (ops.evaluate(event(1000).payload, key) for key in ("first", "second"))
    (given,) = actor.handle([first]).answers
    clock_us[0] -= 10**11
    assert codes(actor.handle([second]).answers[0]) == [1401]
    assert actor.handle([first]).answers == [given], "it is still known"
    clock_us[0] += 1_000_001
    assert isinstance(actor.handle([second]).answers[0], Done)


@pytest.mark.parametrize("found", ["none", "another"])
def test_a_detector_is_activated_in_the_expected_folder_only(make, tmp_path, found):
    expected = begin_folder(tmp_path)
    other = expected if found == "none" else "0" * 32
    if found == "none":
        (tmp_path / "identity").unlink()
    folder = tmp_path / "detectors" / ONE
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(WrongFolder):
        make(folder_id=other).activate(ONE, 1)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    begun = begin_folder(tmp_path)
    assert make(folder_id=begun).activate(ONE, 1) == Activated()


def test_a_folder_that_cannot_be_read_is_an_error_of_the_world(make, tmp_path, files):
    files.fail_next("read")
    with pytest.raises(StorageError, match="cannot be read"):
        make(folder_id=begin_folder(tmp_path)).activate(ONE, 1)
