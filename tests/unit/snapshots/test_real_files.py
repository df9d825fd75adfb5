"""What the operating system's calls write, read, reserve and sync, and how their errors are reported."""

import ctypes
import errno
import os
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from snapshots.data_folder.permissions import unusable
from snapshots.errors import NoRoom, StorageError
from snapshots.files import RealFiles, storage_errors, write_all


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that are synced, in order."""
    paths: list[Path] = []
    for name in ("fsync", "fdatasync"):
        call = getattr(os, name)

        def noted(descriptor: int, call=call) -> None:
            paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            call(descriptor)

        monkeypatch.setattr(os, name, noted)
    monkeypatch.setattr("snapshots.files._sync_data", os.fdatasync)
    return paths


def test_a_sync_reaches_the_file_or_the_folder(tmp_path: Path, synced: list[Path]) -> None:
    files, path = RealFiles(), tmp_path / "file"
    file = files.create(path)
    file.write(b"abc")
    assert synced == []
    file.sync()
    file.sync_data()
    file.close()
    files.write_again(path, 1, b"bc")
    assert synced == [path] * 3
    files.sync_folder(tmp_path)
    assert synced[3:] == [tmp_path]


def test_the_name_of_an_added_folder_is_not_synced(tmp_path: Path, synced: list[Path]) -> None:
    RealFiles().add_folder(tmp_path / "folder")
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o700
    assert synced == []
    with pytest.raises(FileExistsError):
        RealFiles().add_folder(tmp_path / "folder")


def test_calls_at_once_overlap_and_all_have_ended_when_one_has_failed() -> None:
    together, ended = threading.Barrier(3), []

    def call(number: int) -> None:
        together.wait(10)
        if not number:
            raise OSError("the first")
        time.sleep(0.01)
        ended.append(number)

    with pytest.raises(OSError, match="the first"):
        RealFiles().at_once([partial(call, number) for number in range(3)])
    assert sorted(ended) == [1, 2]


@pytest.mark.parametrize("count", range(4))
def test_each_of_calls_at_once_is_made_once(count: int) -> None:
    made: list[int] = []
    RealFiles().at_once([partial(made.append, number) for number in range(count)])
    assert sorted(made) == list(range(count))


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 10_000])
def test_a_file_is_read_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert RealFiles().read(tmp_path / "file") == content


def test_what_a_write_leaves_over_is_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:2], offset))
    (tmp_path / "file").write_bytes(b"0123456789")
    RealFiles().write_again(tmp_path / "file", 3, b"defgh")
    assert (tmp_path / "file").read_bytes() == b"012defgh89"


def test_a_write_that_takes_nothing_is_an_error() -> None:
    taken = iter([1, 0])
    file = SimpleNamespace(write=lambda _: next(taken))
    with pytest.raises(OSError, match="a write took 0 of 2 bytes"):
        write_all(file, b"abc")  # type: ignore[arg-type]


def test_disk_space_that_cannot_be_reserved_is_an_error(tmp_path: Path) -> None:
    file = RealFiles().create(tmp_path / "file")
    # No file can end there, on any file system.
    with pytest.raises(OSError, match="File too large") as caught:
        file.reserve(2**62, 2**62)
    assert caught.value.errno == errno.EFBIG
    file.close()


def fails_as_unsupported(*_: int) -> int:
    ctypes.set_errno(errno.EOPNOTSUPP)
    return -1


@pytest.mark.parametrize("call", [None, fails_as_unsupported])
def test_nothing_is_reserved_where_the_system_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: object
) -> None:
    monkeypatch.setattr("snapshots.files._FALLOCATE", call)
    file = RealFiles().create(tmp_path / "file")
    file.reserve(0, 100_000)
    assert (tmp_path / "file").stat().st_blocks == 0
    file.close()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, NoRoom),
        (errno.EDQUOT, NoRoom),
        (errno.EROFS, NoRoom),
        (errno.EIO, StorageError),
        (errno.ENOENT, StorageError),
    ],
)
def test_only_a_disk_that_takes_no_writes_has_no_room(number: int, kind: type[StorageError]) -> None:
    with (
        pytest.raises(StorageError, match=r"it cannot be made: .* because") as caught,
        storage_errors("it cannot be made"),
    ):
        raise OSError(number, "because")
    assert type(caught.value) is kind


def test_files_and_folders_are_for_their_user_alone(tmp_path: Path) -> None:
    RealFiles().make_folder(tmp_path / "folder")
    RealFiles().create(tmp_path / "folder" / "file").close()
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "folder", tmp_path / "folder" / "file")]
    assert modes == [0o700, 0o600]


def test_the_name_of_each_new_folder_is_synced(tmp_path: Path, synced: list[Path]) -> None:
    RealFiles().make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    RealFiles().make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_a_folder_that_another_process_makes_meanwhile_is_taken_and_its_name_synced(
    tmp_path: Path, synced: list[Path]
) -> None:
    class Meanwhile(RealFiles):
        def make_folder(self, folder: Path) -> None:
            super().make_folder(folder)
            (tmp_path / "folder").mkdir(exist_ok=True)

    Meanwhile().make_folder(tmp_path / "folder")
    assert synced == [tmp_path]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device; make room on its disk"),
        (errno.EDQUOT, "Disk quota exceeded; make room on its disk"),
        (errno.EACCES, "Permission denied; name a folder that this user can create and write to"),
        (errno.EEXIST, "/data is a file; name a folder that this user can create and write to"),
    ],
)
def test_an_unusable_folder_comes_with_what_to_do(number: int, said: str) -> None:
    error = OSError(number, os.strerror(number), "/data")
    assert str(unusable(Path("/data"), error)) == f"the data folder /data cannot be used: {said}"


def test_an_unusable_place_in_the_folder_is_named() -> None:
    error = OSError(errno.EACCES, "Permission denied", "/data/lock")
    assert "Permission denied (/data/lock); name" in str(unusable(Path("/data"), error))
