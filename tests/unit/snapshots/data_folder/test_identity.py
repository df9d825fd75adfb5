"""A data folder's id is made once, and a folder with another id is refused."""

import errno
import os

import pytest

from snapshots.data_folder.identity import begin_folder, check_identity, read_identity
from snapshots.data_folder.lock import FolderLock
from snapshots.errors import Damaged, FolderInUse, NewerFormat, StorageError, WrongFolder
from snapshots.files import RealFiles
from tests.faulty_files import Died, FaultyFiles
from tests.process_table import holders


def text_of(identity):
    return b"rule-detector data folder, format 1\nid " + identity.encode() + b"\n"


def test_a_folder_is_made_for_its_owner_alone_and_has_one_id_for_good(tmp_path):
    folder = tmp_path / "a" / "b"
    first = begin_folder(folder)
    assert (folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    assert begin_folder(folder) == first == read_identity(folder, RealFiles())
    assert begin_folder(tmp_path / "other") != first


def test_where_the_folder_must_exist_none_is_begun(tmp_path):
    for folder in (tmp_path / "data", tmp_path):
        with pytest.raises(WrongFolder, match="is no data folder yet"):
            begin_folder(folder, must_exist=True)
    assert list(tmp_path.iterdir()) == []
    begun = begin_folder(tmp_path / "data")
    assert begin_folder(tmp_path / "data", must_exist=True) == begun


def test_an_older_folder_is_given_an_id_and_keeps_what_it_has(tmp_path):
    (tmp_path / "directory").mkdir(mode=0o700)
    (tmp_path / "lock").write_text("12\n")
    begin_folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"directory", "lock", "identity"}


def test_the_form_of_the_file_is_known(tmp_path):
    (tmp_path / "identity").write_bytes(text_of("0a" * 16))
    assert begin_folder(tmp_path) == "0a" * 16


def test_another_folder_or_none_is_refused_and_left_as_it_is(tmp_path):
    ours, other, empty = tmp_path / "ours", tmp_path / "other", tmp_path / "empty"
    expected, found = begin_folder(ours), begin_folder(other)
    empty.mkdir()
    check_identity(ours, expected, RealFiles())
    with pytest.raises(WrongFolder, match=f"the id {found}.* the id {expected}"):
        check_identity(other, expected, RealFiles())
    for folder in (empty, tmp_path / "missing"):
        with pytest.raises(WrongFolder, match="has no id"):
            check_identity(folder, expected, RealFiles())
    assert list(empty.iterdir()) == []
    assert not (tmp_path / "missing").exists()


def test_a_folder_is_begun_whole_wherever_the_process_dies(tmp_path):
    call = 0
    while True:
        folder = tmp_path / str(call) / "data"
        files = FaultyFiles(fails_at=call, dies=True)
        try:
            begin_folder(folder, files=files)
        except Died:
            found = read_identity(folder, RealFiles())
            begun = begin_folder(folder)
            assert found in (None, begun), "an id that can be read is for good"
            assert {path.name for path in folder.iterdir()} == {"identity", "lock"}
        if not files.failed:
            break
        call += 1
    assert {"make_folder", "create", "write", "sync", "rename", "sync_folder"} <= set(files.calls)


def test_the_id_is_on_the_disk_before_it_has_its_name_and_the_name_before_it_is_given(tmp_path):
    files = FaultyFiles()
    begin_folder(tmp_path / "data", files=files)
    steps = [call for call in files.calls if call in ("write", "sync", "rename", "sync_folder")]
    assert steps == ["write", "sync", "rename", "sync_folder", "sync_folder"]
    assert holders(lambda path: path.is_relative_to(tmp_path)) == set(), "no file stays open"


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EACCES, errno.EROFS])
def test_a_folder_may_be_mounted_where_nothing_can_be_synced(tmp_path, error):
    whole = FaultyFiles()
    begin_folder(tmp_path / "one", files=whole)
    last = len(whole.calls) - 1
    assert whole.calls[last] == "sync_folder"
    files = FaultyFiles(fails_at=last, error=error)
    assert begin_folder(tmp_path / "two", files=files) == read_identity(tmp_path / "two", RealFiles())
    assert files.failed
    with pytest.raises(StorageError, match="Input/output error"):
        begin_folder(tmp_path / "three", files=FaultyFiles(fails_at=last))


def test_a_call_that_fails_leaves_no_half_an_id(tmp_path):
    call = 0
    while True:
        folder = tmp_path / str(call)
        files = FaultyFiles(fails_at=call)
        try:
            begun = begin_folder(folder, files=files)
        except StorageError:
            begun = read_identity(folder, RealFiles()) or begin_folder(folder)
        assert begin_folder(folder) == begun
        if not files.failed:
            break
        call += 1


def test_who_comes_second_takes_the_id_of_the_first(tmp_path):
    class Late(RealFiles):
        looks = 0

        def read(self, path):
            self.looks += 1
            if self.looks == 2:
                # The other one was first, between the look without the lock and this one.
                (tmp_path / "identity").write_bytes(text_of("1" * 32))
            return super().read(path)

    assert begin_folder(tmp_path, files=Late()) == "1" * 32


def test_no_id_is_made_in_a_folder_that_another_process_holds(tmp_path):
    with FolderLock(tmp_path), pytest.raises(FolderInUse):
        begin_folder(tmp_path)
    assert read_identity(tmp_path, RealFiles()) is None
    identity = begin_folder(tmp_path)
    with FolderLock(tmp_path):
        assert begin_folder(tmp_path) == identity, "to read it needs no lock"


@pytest.mark.parametrize("data", [b"", b"rule-detector data folder, format 1\nid 12\n", b"x" * 100])
def test_a_damaged_id_is_refused_with_the_mend_and_not_replaced(tmp_path, data):
    (tmp_path / "identity").write_bytes(data)
    for attempt in (lambda: begin_folder(tmp_path), lambda: check_identity(tmp_path, "1" * 32, RealFiles())):
        with pytest.raises(Damaged, match="remove the file"):
            attempt()
    assert (tmp_path / "identity").read_bytes() == data


def test_an_id_of_a_newer_program_is_refused(tmp_path):
    (tmp_path / "identity").write_bytes(b"rule-detector data folder, format 2\nsomething new\n")
    with pytest.raises(NewerFormat, match="format 2"):
        begin_folder(tmp_path)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o770])
@pytest.mark.parametrize("place", [".", "directory", "detectors"])
def test_a_folder_to_which_others_can_write_is_refused_with_the_mend(tmp_path, mode, place):
    folder = tmp_path / "data"
    begin_folder(folder)
    (folder / place).mkdir(exist_ok=True)
    (folder / place).chmod(mode)
    with pytest.raises(StorageError, match=f"chmod go-w {folder / place}"):
        begin_folder(folder)
    (folder / place).chmod(mode & ~0o022)
    begin_folder(folder)


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(StorageError, match="belongs to the user with id"):
        begin_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_through_a_symbolic_link(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"kept")
    link = tmp_path / "link"
    link.symlink_to(other)
    with pytest.raises(FileExistsError):
        RealFiles().create(link)
    with pytest.raises(OSError, match="symbolic"):
        RealFiles().write_again(link, 0, b"lost")
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "identity.unfinished").symlink_to(other)
    begin_folder(folder)
    assert other.read_bytes() == b"kept"
