"""A copy of a folder that its owner writes to: a recovery of the copy has all that was written before it."""

import errno
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshots import backup
from snapshots.backup import copy_folder
from snapshots.errors import NoRoom, NothingUsable, StorageError
from snapshots.files import OpenFile, RealFiles
from snapshots.folders import create_folder
from snapshots.format.file_names import CLAIM_NUMBER, page_name, segment_name, snapshot_name
from snapshots.inspection import inspect_folder
from snapshots.store import Store
from tests.faulty_files import FaultyFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "one"
    create_folder(made, b"0", version=7)
    return made


class Owner:
    """Appends the numbers from 1 on; the body of a snapshot is the last number."""

    def __init__(self, folder: Path, epoch: int = 1) -> None:
        self.store = Store(folder, epoch=epoch, snapshots_kept=1, segment_bytes_max=200)
        self.last = last_in(self.store)

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self.last += 1
            self.store.reserve(20)
            self.store.append(b"%d" % self.last, version=1)
            self.store.sync()

    def save(self) -> None:
        self.store.save([b"%d" % self.last], version=7, sequence=self.store.begin_snapshot())


def last_in(store: Store) -> int:
    """Recover, and return the last number; every number between the snapshot and it must be there."""
    found = store.recover()
    assert found.snapshot is not None
    begin = int(found.snapshot.body)
    numbers = [int(record.payload) for record in found.records]
    assert numbers == list(range(begin + 1, begin + 1 + len(numbers)))
    return begin + len(numbers)


class Interrupted(RealFiles):
    """Calls `meanwhile` before each listing."""

    def __init__(self, *meanwhile: Callable[[], None]) -> None:
        self._meanwhile = list(meanwhile)

    def names(self, folder: Path) -> list[str]:
        if self._meanwhile:
            self._meanwhile.pop(0)()
        return super().names(folder)


def nothing() -> None:
    pass


class Noting(RealFiles):
    """Notes in which order files are made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def create(self, path: Path) -> OpenFile:
        self.made.append(path.name)
        return super().create(path)


def test_a_segment_is_copied_before_those_that_its_writer_has_read(folder, tmp_path):
    """An owner that has claimed the folder may read a record that was written after the folder was listed."""
    for epoch in (1, 2):
        Owner(folder, epoch).write(9)
    files = Noting()
    copy_folder(folder, tmp_path / "copy", files)
    copied = [name for name in files.made if name.endswith(("1.rdj", "2.rdj"))]
    assert len(copied) == 4
    assert copied == sorted(copied, reverse=True)


def test_a_copy_has_what_was_written_before_it(folder, tmp_path):
    owner = Owner(folder)
    owner.write(9)
    owner.save()
    owner.write(9)
    copied = copy_folder(folder, tmp_path / "copy")
    owner.write(9)
    assert last_in(Store(tmp_path / "copy")) == 18
    assert copied == sum(path.stat().st_size for path in folder.iterdir()) - 9 * 42 - 2 * 44
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700


def test_a_copy_has_pages_and_claims_too(folder, tmp_path):
    owner = Owner(folder)
    owner.write()
    owner.store.save_page(b"kept", version=1, sequence=owner.store.begin_snapshot(), expires_us=2**62)
    owner.save()
    copy_folder(folder, tmp_path / "copy")
    names = {path.name for path in folder.iterdir()}
    assert {page_name(1), segment_name(1, CLAIM_NUMBER)} < names
    assert {path.name for path in (tmp_path / "copy").iterdir()} == names


def test_a_copy_is_on_the_disk_with_its_names_and_closed(folder, tmp_path):
    Owner(folder).write(9)
    files = FaultyFiles()
    copy_folder(folder, tmp_path / "copy", files)
    made = files.calls.index("make_folder")
    assert re.fullmatch("make_folder (create (write )*sync close )+sync_folder", " ".join(files.calls[made:]))


def test_a_snapshot_between_the_listing_and_the_copy_makes_no_hole(folder, tmp_path):
    owner = Owner(folder)
    owner.write(30)

    def saved_again() -> None:
        owner.save()
        owner.write(30)

    copy_folder(folder, tmp_path / "copy", Interrupted(nothing, saved_again, saved_again, nothing))
    assert last_in(Store(tmp_path / "copy")) >= 30
    assert inspect_folder(tmp_path / "copy").damage == ()


def test_another_owner_may_take_over_meanwhile(folder, tmp_path):
    first = Owner(folder, 1)
    first.write(7)

    def taken_over() -> None:
        second = Owner(folder, 2)
        second.write(7)
        second.save()

    copy_folder(folder, tmp_path / "copy", Interrupted(nothing, taken_over, nothing))
    assert last_in(Store(tmp_path / "copy")) == 14


@pytest.mark.slow
def test_copies_that_are_made_all_the_time_are_whole(folder, tmp_path):
    owner, ended = Owner(folder), threading.Event()

    def work() -> None:
        while not ended.is_set():
            owner.write(5)
            owner.save()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for number in range(30):
            before = owner.last - 1
            copy_folder(folder, tmp_path / str(number))
            assert last_in(Store(tmp_path / str(number))) >= before
    finally:
        ended.set()
        thread.join()


def test_a_folder_that_never_stops_changing_is_refused_in_the_end(folder, tmp_path, monkeypatch):
    paused_s: list[float] = []
    monkeypatch.setattr(backup.time, "sleep", paused_s.append)
    owner = Owner(folder)

    def saved() -> None:
        owner.write()
        owner.save()

    with pytest.raises(StorageError, match="in each of 100 tries"):
        copy_folder(folder, tmp_path / "copy", Interrupted(*[saved] * 300))
    assert not (tmp_path / "copy").exists()
    assert sum(paused_s) >= 0.9, "its owner had time to finish"


def test_a_folder_without_a_snapshot_is_refused(folder, tmp_path):
    (folder / snapshot_name(0)).unlink()
    with pytest.raises(NothingUsable, match="holds no snapshot"):
        copy_folder(folder, tmp_path / "copy")
    with pytest.raises(NothingUsable, match="holds no snapshot"):
        copy_folder(tmp_path / "gone", tmp_path / "copy")


def test_a_full_disk_is_told(folder, tmp_path):
    files = FaultyFiles(error=errno.ENOSPC)
    files.fail_next("write")
    with pytest.raises(NoRoom, match="cannot be copied"):
        copy_folder(folder, tmp_path / "copy", files)


def test_unfinished_files_and_copies_of_damaged_ones_stay_behind(folder, tmp_path):
    (folder / f"{snapshot_name(5)}.3.unfinished").write_bytes(b"x")
    (folder / f"{snapshot_name(4)}.damaged").write_bytes(b"x")
    (folder / "notes").write_bytes(b"x")
    copy_folder(folder, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == [snapshot_name(0)]
