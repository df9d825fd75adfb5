"""Changes that fail are made whole or not at all, and nothing is answered before it is on the disk."""

import errno
import shutil
from contextlib import suppress

import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.offline import opened_offline
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import KnownToken, StoredToken
from snapshots.errors import (
    FolderInUse,
    NoRoom,
    NothingUsable,
    StorageError,
    WriteFailed,
)
from snapshots.files import RealFiles
from snapshots.format.segments import HEADER_BYTES
from snapshots.store import Store
from tests.faulty_files import FaultyFiles
from tests.local_runtime.catalogues import newborn
from tests.unit.runtime.catalogue.catalogue.directories import A, B, C, opened_with, told


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("change", ["add", "revoke", "create", "delete"])
def test_a_change_that_fails_is_made_whole_or_not_at_all(tmp_path, change, error):
    call = 0
    while True:
        data = tmp_path / str(call)
        files = FaultyFiles(error=error)
        with opened_with(data, files) as directory:
            directory.add_token(A, StoredToken(b"a", "hint"))
            directory.create_detectors({A: "a"})
            before = told(directory)
            known = {A}, directory._state.detectors.copy()
            files.fails_at = len(files.calls) + call
            work = {
                "add": lambda one: one.add_token(B, StoredToken(b"b", "hint")),
                "revoke": lambda one: one.revoke_token(A),
                "create": lambda one: one.create_detectors({B: "b"}),
                "delete": lambda one: one.delete_detector(A),
            }[change]
            try:
                work(directory)
            except StorageError:
                assert files.failed
                assert (directory._state.tokens.keys(), directory._state.detectors) == known
            if not files.failed:
                break
        with opened_with(data, RealFiles()) as directory:
            reopened = told(directory)
            # What was removed before the failure is not there.
            with suppress(Refusal):
                work(directory)
            after = told(directory)
        assert reopened in (before, after)
        with opened_with(data, RealFiles()) as directory:
            assert told(directory) == after
            left = {path.name for path in (data / "detectors").iterdir()}
        assert left == set(after[1])
        call += 1
    assert call >= 3


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_a_disk_without_room_refuses_a_change_and_takes_it_when_there_is_room(opened, files, error):
    directory = opened()
    files.error, files.for_good = error, True
    files.fail_next("reserve", "create", "make_folder")
    with pytest.raises(NoRoom):
        directory.create_detectors({A: "a"})
    files.fails_at = None
    directory.create_detectors({A: "a"})
    assert list(opened().changes(0, 0).detectors.whole or ()) == [A]


def test_a_single_change_whose_write_fails_was_certainly_not_made(opened, files):
    directory = opened()
    files.fail_next("write")
    with pytest.raises(WriteFailed):
        directory.add_token(A, StoredToken(b"a", "hint"))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_opened_for_reading_and_written_when_there_is_room(opened, files, error):
    directory = opened()
    directory.create_detectors({A: "a"})
    # It dies, and saves nothing: the next one would have to settle what is in the journal.
    directory._store.close()
    files.error, files.for_good = error, True
    files.fail_next("reserve")
    directory = opened()
    assert told(directory)[1] == {A: "a"}
    first = directory.lease(A)
    assert first is not None
    with pytest.raises(NoRoom):
        directory.create_detectors({B: "b"})
    files.fails_at = None
    directory.create_detectors({B: "b"})
    directory._store.close()
    directory = opened()
    assert told(directory)[1] == {A: "a", B: "b"}
    assert directory.lease(A) > first


def test_the_folder_of_a_detector_that_was_never_entered_goes_at_the_next_opening(opened, tmp_path):
    opened()
    newborn(tmp_path, B)
    opened()
    assert not (tmp_path / "detectors" / B).exists()


def test_a_folder_that_is_of_no_detector_is_told_of_and_left_alone(opened, tmp_path):
    directory = opened()
    directory.create_detectors({A: "a"})
    other = tmp_path / "detectors" / B
    shutil.copytree(tmp_path / "detectors" / A, other)
    store = Store(other, epoch=7)
    store.recover()
    store.append(b"", version=1)
    store.sync()
    store.close()
    directory.close()
    again = Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0))
    (warning,) = again.open().damage
    again.close()
    assert str(other) in warning
    assert other.exists()


def test_what_was_found_at_the_opening_is_settled_before_anything_is_answered(opened, tmp_path):
    directory = opened()
    directory.create_detectors({A: "a"})
    # It dies, and saves nothing.
    directory._store.close()
    opened()
    segments = sorted((tmp_path / "directory").glob("journal-*-000001.rdj"))
    assert [path.stat().st_size >= HEADER_BYTES for path in segments] == [True, True]


def test_a_catalogue_that_is_gone_is_not_begun_anew(opened, tmp_path):
    directory = opened()
    directory.create_detectors({A: "a"})
    directory.close()
    shutil.rmtree(tmp_path / "directory")
    with pytest.raises(NothingUsable, match="is gone or empty"):
        opened()


def test_a_folder_that_was_begun_and_not_finished_is_begun_again(opened, tmp_path):
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "snapshot-00000000000000000000.rds.0.unfinished").write_bytes(b"half")
    opened().add_token(A, StoredToken(b"a", "hint"))
    assert opened().changes(0, 0).tokens.whole == {b"a": KnownToken(A)}


def test_no_room_for_a_snapshot_does_not_keep_the_folder_from_being_opened(opened, files):
    for number in range(12):
        opened().add_token(f"{number:032x}", StoredToken(b"%d" % number, "hint"))
    files.error, files.for_good = errno.ENOSPC, True
    files.fail_next("rename")
    assert len(opened().changes(0, 0).tokens.whole or ()) == 12


def test_two_directories_cannot_have_one_folder(opened, tmp_path):
    opened()
    with pytest.raises(FolderInUse), opened_offline(tmp_path):
        pass


def test_a_folder_is_let_go_of_where_opening_it_fails(opened, tmp_path, files):
    opened().close()
    failing = Catalogue(
        RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0), files=FaultyFiles(fails_at=1)
    )
    with pytest.raises(StorageError, match="cannot be read"):
        failing.open()
    opened()


@pytest.mark.parametrize("wanted", [{B: "b"}, {B: "b", C: "c"}], ids=["one", "two"])
@pytest.mark.parametrize("call", ["reserve", "add_folder", "create", "write", "sync", "sync_folder"])
def test_detectors_for_which_there_is_no_room_leave_nothing_behind(opened, files, tmp_path, call, wanted):
    directory = opened()
    directory.create_detectors({A: "a"})
    directory._store._journal._current.reserved_bytes = 0
    files.error = errno.ENOSPC
    # Where there is no room for much, there may be for little.
    files.for_good = call == "reserve"
    files.fail_next(call)
    with pytest.raises(NoRoom):
        directory.create_detectors(wanted)
    files.fails_at = None
    assert [path.name for path in (tmp_path / "detectors").iterdir()] == [A]
    directory.create_detectors(wanted)
    assert opened().changes(0, 0).detectors.whole == {A: "a", **wanted}


def test_of_detectors_that_are_created_together_some_may_be_there_if_writing_fails(opened, files):
    directory = opened()
    directory.create_detectors({A: "a"})
    journal_write = directory._store._journal._current.write

    def second_write(data):
        directory._store._journal._current.write = failing_write
        journal_write(data)

    def failing_write(_):
        raise WriteFailed("the disk")

    directory._store._journal._current.write = second_write
    with pytest.raises(StorageError, match="some of 2 changes may be written") as caught:
        directory.create_detectors({B: "b", C: "c"})
    assert not isinstance(caught.value, WriteFailed), "which says that nothing was done"
    assert opened().changes(0, 0).detectors.whole == {A: "a", B: "b"}


@pytest.mark.parametrize("released", [True, False])
def test_an_opening_that_cannot_write_does_not_say_that_it_cannot_read(tmp_path, released):
    def prepared():
        shutil.rmtree(tmp_path, ignore_errors=True)
        with opened_with(tmp_path, RealFiles()) as directory:
            directory.add_token(A, StoredToken(b"a", "hint"))
            if released:
                directory._store.release()

    prepared()
    files = FaultyFiles()
    with opened_with(tmp_path, files):
        calls = list(files.calls)
    said = []
    for number, call in enumerate(calls):
        if call in {"names", "read", "read_start", "changed_us", "is_named"}:
            continue
        prepared()
        files = FaultyFiles(number)
        try:
            with opened_with(tmp_path, files):
                pass
        except StorageError as error:
            said.append((call, str(error)))
    assert [one for one in said if "cannot be read" in one[1]] == []
    assert any(call == "sync_folder" and "cannot be synced" in text for call, text in said)


@pytest.mark.parametrize("with_marks", [True, False])
def test_a_catalogue_that_lost_its_journal_is_refused_and_nothing_is_removed(opened, tmp_path, with_marks):
    directory = opened()
    directory.create_detectors({A: "a"})
    store = Store(tmp_path / "detectors" / A, epoch=7)
    store.recover()
    store.append(b"", version=1)
    store.sync()
    store.close()
    directory.close()
    for kind in ("journal", "journal" if with_marks else "mark"):
        for path in (tmp_path / "directory").glob(f"{kind}-*"):
            path.unlink()
    for path in (tmp_path / "directory").glob("snapshot-*"):
        if path.name != "snapshot-00000000000000000000.rds":
            path.unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match="rdj is gone" if with_marks else "has lost its journal"):
            Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0)).open()
    assert (tmp_path / "detectors" / A).exists()
