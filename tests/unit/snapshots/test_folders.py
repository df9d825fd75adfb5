"""The folders of stores: on the disk once they are made, gone once they are destroyed; used or unused."""

import errno
import random
import time
from pathlib import Path

import pytest

from snapshots.errors import NoRoom, NothingUsable
from snapshots.files import wall_clock_us
from snapshots.folders import create_folder, create_folders, destroy_folder, has_snapshot, is_unused
from snapshots.format.file_names import CLAIM_NUMBER, segment_name, snapshot_name
from snapshots.format.snapshot_file import Snapshot
from snapshots.inspection import read_only
from tests.crash.model.memory_disk import Image
from tests.crash.model.memory_folders import FoldersDisk
from tests.faulty_files import Died, FaultyFiles

PARENT = Path("/data/detectors")
ONE, TWO = PARENT / "one", PARENT / "two"
BORN = Snapshot(epoch=0, sequence=0, version=7, body=b"born")


@pytest.fixture
def disk() -> FoldersDisk:
    made = FoldersDisk()
    made.make_folder(PARENT)
    return made


def crash_images(disk: FoldersDisk) -> list[Image]:
    return list(disk.images(256, random.Random(1)))


def folders_in(image: Image) -> set[Path]:
    return {path for path in FoldersDisk(image).folders if path.parent == PARENT}


def test_a_folder_that_was_made_is_on_the_disk_wherever_an_earlier_attempt_died():
    for calls in range(100):
        disk = FoldersDisk()
        disk.make_folder(PARENT)
        # Nobody has synced its name.
        disk.add_folder(ONE)
        files = FaultyFiles(fails_at=calls, dies=True, files=disk)
        try:
            create_folder(ONE, b"born", version=7, files=files)
        except Died:
            create_folder(ONE, b"born", version=7, files=disk)
        for image in crash_images(disk):
            assert read_only(ONE, FoldersDisk(image)).snapshot == BORN, files.calls
        if not files.failed:
            break
    assert "sync_folder" in files.calls[:calls]


def test_folders_that_were_made_together_are_on_the_disk(disk):
    create_folders(PARENT, ["one", "two"], b"born", version=7, files=disk)
    for image in crash_images(disk):
        for folder in (ONE, TWO):
            assert read_only(folder, FoldersDisk(image)).snapshot == BORN


def test_folders_for_which_there_is_no_room_are_removed_with_all_their_descriptors(tmp_path):
    descriptors = Path("/proc/self/fd")
    before, failed = len(list(descriptors.iterdir())), set[str]()
    for calls in range(100):
        files = FaultyFiles(fails_at=calls, error=errno.ENOSPC)
        try:
            create_folders(tmp_path, ["one", "two"], b"born", version=7, files=files)
        except NoRoom:
            assert list(tmp_path.iterdir()) == [], files.calls
        assert len(list(descriptors.iterdir())) == before, files.calls
        if not files.failed:
            break
        failed.add(files.calls[calls])
    assert failed == {"make_folder", "add_folder", "create", "write", "sync", "close", "sync_folder"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_first_snapshot_may_come_in_pieces(tmp_path):
    create_folder(tmp_path / "one", iter([b"bo", b"rn"]), version=7)
    assert read_only(tmp_path / "one").snapshot == BORN


@pytest.mark.parametrize("left", [segment_name(1, 1), f"{snapshot_name(3)}.damaged"])
def test_a_folder_that_lost_its_snapshots_gets_no_first_one(tmp_path, left):
    (tmp_path / left).touch()
    with pytest.raises(NothingUsable, match="is not new, and holds no snapshot"):
        create_folder(tmp_path, b"born", version=7)
    assert [path.name for path in tmp_path.iterdir()] == [left]


def test_a_folder_that_was_destroyed_does_not_come_back(disk):
    create_folder(ONE, b"born", version=7, files=disk)
    create_folder(TWO, b"born", version=7, files=disk)
    destroy_folder(ONE, disk)
    for image in crash_images(disk):
        assert folders_in(image) == {TWO}


@pytest.mark.parametrize(
    ("name", "content", "unused"),
    [
        (segment_name(1, CLAIM_NUMBER), b"", True),
        (segment_name(1, 1), b"", True),
        (segment_name(1, 1), b"x", False),
        (snapshot_name(1), b"", False),
        (f"{segment_name(1, 1)}.torn", b"", False),
    ],
)
def test_a_folder_is_unused_until_something_was_written_or_set_aside(tmp_path, name, content, unused):
    assert is_unused(tmp_path / "none")
    create_folder(tmp_path, b"born", version=7)
    assert is_unused(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert is_unused(tmp_path) is unused


def test_a_folder_is_looked_for_where_the_caller_says(disk, tmp_path):
    create_folder(ONE, b"born", version=7, files=disk)
    assert has_snapshot(ONE, disk)
    assert not has_snapshot(ONE)
    disk.create(ONE / snapshot_name(1))
    assert not is_unused(ONE, disk)
    assert is_unused(ONE)


def test_it_counts_microseconds_since_1970() -> None:
    before = time.time()
    assert before - 1 <= wall_clock_us() / 1_000_000 <= time.time() + 1
