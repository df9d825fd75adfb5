"""The marks of a folder say when something is due in it, whatever dies, is fenced off, or has no room."""

import errno
import itertools
import shutil
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests.operations import TICK_DUE, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.errors import StorageError
from snapshots.files import RealFiles
from snapshots.write.due_marks import due_times
from tests.faulty_files import Died, FaultyFiles
from tests.local_runtime.alarms import SECOND, T, alarm, event, install
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.owners import ONE

DUE_US = T + 5 * SECOND
LATE_US = T + 60 * SECOND


@pytest.fixture(autouse=True)
def alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def owner(data: Path, epoch: int, now_us: int = T, files: FaultyFiles | None = None) -> OperationExecutor:
    actor = OperationExecutor(RuntimeSettings(data=data), files=files or FaultyFiles(), now_us=lambda: now_us)
    actor.activate(ONE, epoch)
    return actor


def ask(actor: OperationExecutor, *operations: Operation) -> None:
    reply = actor.handle(operations)
    assert reply.crash is None, reply.crash
    assert all(isinstance(one, Done) for one in reply.answers), reply.answers


def said(data: Path) -> int | None:
    """What the folder says, as seconds after T; 0 if it does not know."""
    found = due_times(data / "detectors", [ONE], RealFiles()).get(ONE)
    return found if not found else (found - T) // SECOND


@pytest.fixture
def data(tmp_path: Path) -> Path:
    newborn(tmp_path, ONE)
    return tmp_path


def test_while_an_owner_is_there_its_folder_says_only_that_something_may_be_due(data: Path) -> None:
    actor = owner(data, 1)
    ask(actor, event(T))
    assert said(data) is None
    ask(actor, alarm(DUE_US))
    assert said(data) == 0
    actor.passivate()
    assert said(data) == 5
    # An owner that died, and one that has done nothing.
    owner(data, 2)
    assert said(data) == 0
    owner(data, 3).passivate()
    assert said(data) == 5


def test_once_nothing_is_due_there_is_no_mark(data: Path) -> None:
    actor = owner(data, 1)
    ask(actor, event(T), alarm(DUE_US))
    actor.passivate()
    actor = owner(data, 2, LATE_US)
    ask(actor, Operation(TICK_DUE, b""))
    actor.passivate()
    assert said(data) is None
    assert not [*data.glob("detectors/*/due-*")]


def test_an_owner_marks_once_however_much_becomes_due(data: Path) -> None:
    files = FaultyFiles()
    actor = owner(data, 1, files=files)
    ask(actor, event(T))
    for n in range(5):
        ask(actor, alarm(DUE_US + n, f"{n}"))
    assert len([*data.glob("detectors/*/due-*")]) == 1
    actor.passivate()
    assert said(data) == 5
    # The first one stays, in case the machine loses the new one. The next owner leaves no more.
    assert len([*data.glob("detectors/*/due-*")]) == 2
    owner(data, 2).passivate()
    assert said(data) == 5
    assert len([*data.glob("detectors/*/due-*")]) == 2


def test_an_owner_that_was_fenced_off_removes_no_mark(data: Path) -> None:
    first = owner(data, 1)
    ask(first, event(T), alarm(DUE_US))
    second = owner(data, 2)
    with pytest.raises(StorageError):
        first.passivate()
    ask(second, event(T + 1))
    assert said(data) == 0
    second.passivate()
    assert said(data) == 5


def test_on_a_full_disk_what_is_due_is_answered_and_marked_once_there_is_room(data: Path) -> None:
    files = FaultyFiles()
    actor = owner(data, 1, files=files)
    ask(actor, event(T))
    files.error = errno.ENOSPC
    files.fail_next("create")
    files.for_good = True
    ask(actor, alarm(DUE_US))
    assert said(data) is None
    files.fails_at = None
    ask(actor, event(T + 1))
    assert said(data) == 0
    files.fail_next("create")
    actor.passivate()
    assert said(data) == 0, "it stays, since there is no room for one that says when"


def owners(data: Path, files: FaultyFiles, answered: list[str]) -> None:
    """What a detector lives through: something becomes due, it rests, is ticked, and rests for good."""
    actor = owner(data, 1, files=files)
    ask(actor, event(T))
    ask(actor, alarm(DUE_US))
    answered.append("due")
    actor.passivate()
    actor = owner(data, 2, LATE_US, files)
    ask(actor, Operation(TICK_DUE, b""))
    answered.append("fired")
    actor.passivate()
    actor = owner(data, 3, LATE_US, files)
    ask(actor, event(LATE_US), alarm(LATE_US + 5 * SECOND, "another"))
    answered.append("due again")
    actor.passivate()


@pytest.mark.slow
def test_whenever_the_process_is_killed_what_is_due_is_known_and_fires_once(tmp_path: Path) -> None:
    """It dies at each call of a file, one after another; a write is then half done."""
    died = 0
    for number in itertools.count():
        data = tmp_path / "data"
        newborn(data, ONE)
        files = FaultyFiles(number, dies=True)
        answered: list[str] = []
        try:
            owners(data, files, answered)
        except Died:
            died += 1
        else:
            break
        known = due_times(data / "detectors", [ONE], RealFiles()).get(ONE)
        actor = owner(data, 9, LATE_US + 60 * SECOND)
        due_us = actor.due_us
        assert due_us is None or known is not None, (number, answered)
        assert known is None or due_us is None or known <= due_us, (number, answered)
        if answered:
            ask(actor, Operation(TICK_DUE, b""))
            detector = actor._the_active().detector
            fired = {rule.name: detector.verdicts.times_fired(rule.priority) for rule in detector.rules()}
            assert fired["alarm"] == 1, (number, answered)
            assert fired.get("another", 1) == 1, (number, answered)
        shutil.rmtree(data)
    assert died > 40
