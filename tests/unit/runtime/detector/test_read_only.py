"""Detectors that can only be read: a full disk keeps nobody from reading rules, and nothing is made up."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.runtime.contract.errors import STARTING
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence.replay_attempts import KILLS_MAX, Poisoned, ReplayAttempt
from snapshots.errors import StorageError
from snapshots.inspection import read_only
from tests.faulty_files import FaultyFiles
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.owners import event

pytestmark = pytest.mark.skipping_clock

ONE = "1" * 32
WRITES = ("create", "write", "reserve", "rename")


def make_full(files: FaultyFiles, error: int = errno.ENOSPC) -> None:
    files.error = error
    files.fail_next(*WRITES)
    files.for_good = True


def make_room(files: FaultyFiles) -> None:
    files.fails_at = None


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def make(tmp_path: Path, files: FaultyFiles) -> Any:
    newborn(tmp_path, ONE)
    return lambda: OperationExecutor(RuntimeSettings(data=tmp_path), files=files, now_us=lambda: 10**12)


@pytest.fixture
def killed(make: Any) -> list[str]:
    """Give the rules of a detector whose actor was killed, with records in its journal."""
    actor = make()
    actor.activate(ONE, 1)
    added = [actor.handle([ops.add_rule(name, "a == 1")]).answers[0] for name in "ab"]
    rules = [json.loads(one.result)["id"] for one in added]
    actor.handle([event(1000, a=1)])
    return rules


def rules_of(answer: Any) -> list[str]:
    assert isinstance(answer, Done)
    return [rule["id"] for rule in json.loads(answer.result)["rules"]]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("only", [WRITES, ("reserve",), ("write",)])
def test_a_passive_detector_can_be_read_though_nothing_can_be_written(
    make: Any, files: FaultyFiles, killed: list[str], error: int, only: tuple[str, ...]
) -> None:
    make_full(files, error)
    files.failing = frozenset(only)
    actor = make()
    activated = actor.activate(ONE, 2)
    assert os_text(error) in activated.read_only
    reply = actor.handle([ops.rules(), event(2000, a=1), ops.rule(killed[1]), ops.remove_rule(killed[0])])
    listing, evaluated, one, removed = reply.answers
    assert rules_of(listing) == killed
    assert json.loads(one.result)["id"] == killed[1]
    for refused in (evaluated, removed):
        assert isinstance(refused, Refused)
        assert [entry.code for entry in refused.entries] == [STARTING]
        said = "nothing was done, because the detector is read-only: "
        assert refused.entries[0].message.startswith(said)
    assert reply.no_room == activated.read_only
    assert actor.handle([event(2000, a=1)]).no_room == activated.read_only
    assert actor.handle([ops.rules()]).no_room is None
    assert (reply.unsaved, reply.unsynced, reply.journal_bytes) == (False, False, 0)
    # Whatever else is asked of an actor.
    assert not actor.begin_saving()
    actor.passivate()
    make_room(files)
    assert actor.activate(ONE, 3).read_only is None
    assert rules_of(actor.handle([ops.rules()]).answers[0]) == killed
    assert isinstance(actor.handle([event(2000, a=1)]).answers[0], Done)


def os_text(error: int) -> str:

    return os.strerror(error)


def test_events_are_explained_though_they_cannot_be_evaluated(
    make: Any, files: FaultyFiles, killed: list[str]
) -> None:
    make_full(files)
    actor = make()
    actor.activate(ONE, 2)
    asked = ops.explain(event(2000, a=1).payload)
    [explained] = actor.handle([asked]).answers
    assert isinstance(explained, Done)
    rules = json.loads(explained.result)["rules"]
    assert [(one["ruleId"], one["verdict"]) for one in rules] == [(rule, True) for rule in killed]


def test_reading_changes_nothing(make: Any, files: FaultyFiles, tmp_path: Path, killed: list[str]) -> None:
    folder = tmp_path / "detectors" / ONE
    before = contents(folder)
    make_full(files)
    actor = make()
    actor.activate(ONE, 2)
    assert rules_of(actor.handle([ops.rules()]).answers[0]) == killed
    actor.discard()
    assert contents(folder) == before


def test_other_errors_are_no_reason_to_read_only(make: Any, files: FaultyFiles, killed: list[str]) -> None:
    make_full(files, errno.EIO)
    with pytest.raises(StorageError, match="Input/output error"):
        make().activate(ONE, 2)
    assert len(killed) == 2


def test_what_another_owner_writes_meanwhile_ends_the_reading(
    make: Any, files: FaultyFiles, killed: list[str]
) -> None:
    make_full(files)
    reading = make()
    reading.activate(ONE, 2)
    make_room(files)
    owner = make()
    owner.activate(ONE, 3)
    owner.handle([ops.remove_rule(killed[0])])
    with pytest.raises(StorageError, match="has changed"):
        reading.handle([ops.rules()])


def test_a_record_that_ended_others_is_not_replayed_to_be_read(
    make: Any, files: FaultyFiles, tmp_path: Path, killed: list[str]
) -> None:
    folder = tmp_path / "detectors" / ONE
    last = list(read_only(folder).records)[-1]
    for _ in range(KILLS_MAX):
        attempt = ReplayAttempt(folder, files)
        attempt.begin()
        attempt.reached(last)
    make_full(files)
    with pytest.raises(Poisoned):
        make().activate(ONE, 2)
    assert len(killed) == 2
