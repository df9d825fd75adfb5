"""Segments of earlier owners: which are read, and when they are removed."""

import errno
from pathlib import Path

import pytest

from snapshots.errors import (
    Fenced,
    NothingUsable,
)
from snapshots.files import RealFiles
from snapshots.format.file_names import CLAIM_NUMBER, listing, segment_name, snapshot_name
from snapshots.format.snapshot_file import Snapshot, encode
from snapshots.store import Store
from snapshots.write.snapshot_writer import SnapshotWriter
from tests.unit.snapshots.owners import change, names, opened, recovered, save, write


class Reading(RealFiles):
    def __init__(self) -> None:
        self.read_names: list[str] = []

    def read_start(self, path: Path, bytes_: int) -> bytes:
        self.read_names.append(path.name)
        return super().read_start(path, bytes_)


def saved_by_three(folder: Path) -> None:
    """Leave a snapshot by each of three owners, and the segments that the first of them needs."""
    for epoch in (1, 2, 3):
        store = write(opened(folder, epoch), b"%d" % epoch)
        save(store, b"after %d" % epoch)
        store.release()
    write(opened(folder, 4), b"4").release()


def test_segments_of_owners_before_the_newest_snapshots_are_not_read(folder):
    saved_by_three(folder)
    files = Reading()
    store = Store(folder, epoch=5, files=files)
    assert [one.payload for one in store.recover().records] == [b"4"]
    assert files.read_names == [segment_name(4, 1), segment_name(3, 1)]
    assert (store.segments_read, store.segment_count) == (2, 5)
    save(write(store, b"5"))
    assert store.segments_read == 0


def test_they_are_read_if_that_snapshot_is_damaged(folder):
    saved_by_three(folder)
    change(folder / snapshot_name(3), 50)
    assert recovered(folder) == (b"after 2", [b"3", b"4"])


@pytest.mark.parametrize("sequence", [2, 5])
def test_they_are_read_if_that_snapshot_was_fenced_off(folder, sequence):
    write(opened(folder, 1), b"1").release()
    write(opened(folder, 3), b"3").release()
    fenced = Snapshot(epoch=2, sequence=sequence, version=7, body=b"fenced")
    (folder / snapshot_name(sequence)).write_bytes(encode(fenced))
    found = Store(folder).recover()
    assert found.snapshot is not None
    assert found.snapshot.body == b"born"
    assert [one.payload for one in found.records] == [b"1", b"3"]
    assert [damage.path.name for damage in found.damage] == [f"{snapshot_name(sequence)}.fenced"]


def test_they_are_removed_once_every_snapshot_is_by_a_later_owner(folder):
    saved_by_three(folder)
    store = opened(folder, 5, snapshots_kept=2)
    save(write(store, b"5"))
    kept = [(4, 1), (5, CLAIM_NUMBER), (5, 1), (5, 2)]
    assert names(folder) == [segment_name(*one) for one in kept] + [snapshot_name(3), snapshot_name(5)]
    assert store.segment_count == 3
    change(folder / snapshot_name(5), 50)
    assert recovered(folder) == (b"after 3", [b"4", b"5"])


def test_segments_are_counted_until_they_are_removed_and_no_other_files_are(folder):
    saved_by_three(folder)
    opened(folder, 5)
    SnapshotWriter(folder, 4, RealFiles()).save_page(b"expired", version=1, sequence=1, expires_us=1)
    store = opened(folder, 6)
    assert (store.segments_read, store.segment_count) == (3, 6)
    for payload in (b"5", b"6", b"7"):
        save(write(store, payload))
        assert store.segment_count == len(listing(names(folder)).segments)


class Stuck(RealFiles):
    stuck = True

    def remove(self, path: Path) -> None:
        if self.stuck and path.name.startswith("journal-"):
            raise OSError(errno.EIO, "it cannot be removed")
        super().remove(path)


def test_what_could_not_be_removed_is_removed_with_a_later_snapshot(folder):
    files = Stuck()
    store = write(opened(folder, 1, snapshots_kept=1, files=files), b"one")
    save(store)
    assert segment_name(1, 1) in names(folder)
    assert store.segment_count == 2
    files.stuck = False
    write(store, b"two")
    save(store)
    assert segment_name(1, 1) not in names(folder)
    assert store.segment_count == 1
    assert recovered(folder) == (b"saved", [])


def test_a_claim_stays_though_its_owner_wrote_nothing(folder):
    write(opened(folder, 1), b"one")
    second = opened(folder, 2, snapshots_kept=1)
    save(second)
    assert names(folder) == [segment_name(2, CLAIM_NUMBER), segment_name(2, 1), snapshot_name(1)]
    with pytest.raises(Fenced):
        Store(folder, epoch=2).recover()


def test_a_folder_without_any_snapshot_lost_it(tmp_path):
    with pytest.raises(NothingUsable, match="there is none"):
        Store(tmp_path / "none").recover()
    assert names(tmp_path) == []


def test_folders_from_before_there_was_a_journal_go_on_after_their_newest_snapshot(tmp_path):
    for sequence in (6, 7):
        (tmp_path / snapshot_name(sequence)).write_bytes(encode(Snapshot(4, sequence, 1, b"%d" % sequence)))
    store = Store(tmp_path)
    found = store.recover()
    assert found.snapshot is not None
    assert (found.snapshot.body, store.epoch, store.sequence) == (b"7", 5, 7)
    assert store.append(b"next", version=1) == 8
