"""Activations: what was answered is there, and what fails leaves nothing behind."""

from pathlib import Path

import pytest

from engine.language.limits import Limits
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Activated
from engine.runtime.detector.persistence import replay
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import (
    StorageError,
    WrongFolder,
)
from tests.local_runtime.owners import ONE, TWO, codes, event
from tests.unit.runtime.detector.executor.requests import add, answer, fired


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
    restore = replay.restore

    def watched(*given):
        restored = restore(*given)
        marked.append((tmp_path / "detectors" / ONE / "replaying").exists())
        return restored

    monkeypatch.setattr(replay, "restore", watched)
    # The first actor was killed, as far as the second one can tell.
    make().activate(ONE, 2)
    assert marked == [True]
    assert not (tmp_path / "detectors" / ONE / "replaying").exists()


def test_a_replay_that_raises_an_error_was_survived_too(actor, make, tmp_path, monkeypatch):
    answer(actor, event(a=1))

    def failing(recovered, answers, limits, reached):
        reached(next(iter(recovered.records)))
        raise ValueError("no process would get past this")

    monkeypatch.setattr(replay, "restore", failing)
    with pytest.raises(ValueError, match="past this"):
        make().activate(ONE, 2)
    assert not (tmp_path / "detectors" / ONE / "replaying").exists()


def test_an_actor_hosts_one_detector_after_another(make, actor):
    rule_id = add(actor)
    actor.passivate()
    actor.activate(TWO, 2)
    assert answer(actor, ops.rules()) == {"rules": []}
    actor.passivate()
    actor.activate(ONE, 3)
    assert fired(actor, a=1) == [rule_id]


def test_a_long_journal_is_not_left_to_the_next_activation(make, actor, files):
    add(actor)
    actor.handle([event(1000 + number, text="x" * 1000) for number in range(300)])
    actor.passivate()
    assert files.calls.count("rename") == 1
    assert make().activate(ONE, 2).records == 0


def test_an_actor_that_could_not_activate_a_detector_can_host_another(make, actor, tmp_path):
    add(actor)
    for path in (tmp_path / "detectors" / ONE).iterdir():
        path.write_bytes(b"\0" * 100)
    other = make()
    with pytest.raises(StorageError):
        other.activate(ONE, 2)
    other.activate(TWO, 3)
    assert other.detector_id == TWO


def test_what_fails_without_a_death_is_tried_as_often_as_it_takes(make, actor, monkeypatch):
    rule_id = add(actor, "once a == 1")
    fired(actor, 1000, a=1)
    other_limits = {"limits": Limits(keys_max=3)}

    def fails(*_, **__):
        raise StorageError("the disk has a bad day")

    # Other limits are written down when the detector is activated, and a step may meet any error.
    for place in (
        "engine.runtime.detector.active_detector.ActiveDetector.write",
        "engine.runtime.detector.persistence.replay.Replay._observe",
    ):
        monkeypatch.setattr(place, fails)
        for epoch in range(2, 6):
            with pytest.raises(StorageError, match="bad day"):
                make(**other_limits).activate(ONE, epoch if "write" in place else 10 + epoch)
        monkeypatch.undo()
    other = make(**other_limits)
    assert other.activate(ONE, 20).records == 2
    assert fired(other, 2000, a=2) == [rule_id]


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
    assert len(list((tmp_path / "detectors" / ONE).glob("journal-*"))) <= 20


def test_however_often_a_detector_is_activated_for_nothing_its_folder_stays_small(make, actor, tmp_path):
    fired(actor, 1_000_000, a=1)
    actor.passivate()
    for epoch in range(2, 40):
        other = make()
        other.activate(ONE, epoch)
        assert codes(other.handle([event(1)]).answers[0]) == [1402]
        other.passivate()
        assert len(list((tmp_path / "detectors" / ONE).glob("journal-*"))) < 20


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
