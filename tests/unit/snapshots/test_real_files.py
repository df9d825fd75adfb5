"""What is written with the operating system's calls is synced where a caller asks for it."""

import errno
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from snapshots.data_folder.permissions import unusable
from snapshots.files import RealFiles


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
