"""What saving a snapshot leaves in a folder: what it writes, what it removes, and what stays."""

from collections.abc import Callable
from pathlib import Path

import pytest

from snapshots.errors import Fenced
from snapshots.files import RealFiles
from snapshots.format.file_names import page_name, snapshot_name, unfinished_name
from snapshots.store import Store
from tests.crash.model.history import FOLDER
from tests.faulty_files import FaultyFiles
from tests.unit.snapshots.owners import after_a_crash, flipped, opened, recovered, save, write


def test_a_save_returns_the_size_of_the_file_and_leaves_none_open(folder):
    descriptors = Path("/proc/self/fd")
    store = write(opened(folder, 1), b"one")
    sequence = store.begin_snapshot()
    before = len(list(descriptors.iterdir()))
    saved_bytes = store.save([b"sa", b"", b"v" * 70_000, b"ed"], version=7, sequence=sequence)
    assert saved_bytes == (folder / snapshot_name(1)).stat().st_size
    assert len(list(descriptors.iterdir())) == before
    assert recovered(folder) == (b"sa" + b"v" * 70_000 + b"ed", [])


def test_a_save_that_makes_nothing_obsolete_syncs_the_folder_once(folder):
    files = FaultyFiles()
    store = write(opened(folder, 1, files), b"one")
    sequence = store.begin_snapshot()
    synced = files.calls.count("sync_folder")
    store.save([b"saved"], version=7, sequence=sequence)
    assert files.calls.count("sync_folder") == synced + 1


def test_a_file_that_an_earlier_attempt_left_is_replaced(folder):
    store = write(opened(folder, 1), b"one")
    (folder / unfinished_name(snapshot_name(1), 1)).write_bytes(b"what it could not remove")
    save(store)
    assert recovered(folder) == (b"saved", [])


class Renaming(RealFiles):
    """Real files; something happens before each file gets its name."""

    def __init__(self, before: Callable[[], object]) -> None:
        self._before = before

    def rename(self, old: Path, new: Path) -> None:
        self._before()
        super().rename(old, new)


def test_an_owner_whose_unfinished_snapshot_a_later_one_removed_is_fenced_off(folder):
    store = write(opened(folder, 1, Renaming(lambda: opened(folder, 2))), b"one")
    sequence = store.begin_snapshot()
    with pytest.raises(Fenced, match="owned by epoch 2"):
        store.save([b"late"], version=7, sequence=sequence)


def test_no_removed_snapshot_comes_back_without_its_records_after_a_crash(disk):
    save(write(opened(FOLDER, 1, disk, snapshots_kept=1), b"one"))
    assert not any(snapshot_name(0) in image for image in after_a_crash(disk))


def save_page(store: Store, expires_us: int) -> int:
    """Begin a snapshot, save the page that belongs to it, and return the number of both."""
    sequence = store.begin_snapshot()
    store.save_page(b"kept", version=2, sequence=sequence, expires_us=expires_us)
    return sequence


def test_pages_are_removed_with_the_first_snapshot_after_they_expire(folder):
    now_us = 0
    store = opened(folder, 1, now_us=lambda: now_us)
    for number, expires_us in enumerate((999, 1_000, 1_001), start=1):
        sequence = save_page(write(store, b"%d" % number), expires_us)
        store.save([b"saved"], version=7, sequence=sequence)
    now_us = 1_000
    save(store)
    assert [path.name for path in sorted(folder.glob("page-*"))] == [page_name(2), page_name(3)]


def test_a_damaged_page_is_left_to_the_next_recovery(folder):
    store = write(opened(folder, 1), b"one")
    sequence = save_page(store, expires_us=0)
    path = folder / page_name(sequence)
    path.write_bytes(flipped(path.read_bytes(), 20))
    store.save([b"saved"], version=7, sequence=sequence)
    assert path.exists()
