"""Inspecting a folder reports everything and changes nothing."""

import errno
import os
from pathlib import Path

import pytest

from snapshots.errors import Damaged, Fenced, NothingUsable, StorageError
from snapshots.files import RealFiles
from snapshots.folders import create_folder
from snapshots.format.file_names import segment_name, snapshot_name
from snapshots.inspection import SegmentReport, inspect_folder, read_only
from snapshots.store import Store
from snapshots.write.snapshot_writer import SnapshotWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_folder(tmp_path, b"born", version=7)
    for epoch in (1, 2):
        store = Store(tmp_path, epoch=epoch)
        store.recover()
        store.append(b"first of %d" % epoch, version=3)
        store.sync()
        sequence = store.begin_snapshot()
        store.save([b"saved"], version=7, sequence=sequence)
        store.append(b"second of %d" % epoch, version=3)
        store.sync()
    return tmp_path


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_file_is_told_and_nothing_is_changed(folder):
    before = everything(folder)
    report = inspect_folder(folder)
    assert [(one.sequence, one.epoch, one.version, one.reason) for one in report.snapshots] == [
        (0, 0, 7, None),
        (1, 1, 7, None),
        (3, 2, 7, None),
    ]
    assert [(one.epoch, one.number, one.first, one.last, one.records) for one in report.segments] == [
        (1, 1, 1, 1, 1),
        (1, 2, 2, 2, 1),
        (2, 1, 3, 3, 1),
        (2, 2, 4, 4, 1),
    ]
    assert (report.epoch, report.snapshot_sequence, report.sequence, report.refusal) == (2, 3, 4, None)
    assert all(one.counts and one.reason is None for one in report.segments)
    assert everything(folder) == before


def test_it_can_be_read_without_being_claimed(folder):
    before = everything(folder)
    found = read_only(folder)
    assert found.snapshot is not None
    assert found.snapshot.body == b"saved"
    assert [one.payload for one in found.records] == [b"second of 2"]
    assert everything(folder) == before


def test_a_segment_without_records_is_told_as_one(folder):
    store = Store(folder, epoch=3)
    store.recover()

    def told(*, file_bytes: int, counts: bool, first: int | None, reason: str | None) -> SegmentReport:
        return SegmentReport(
            segment_name(3, 1), 3, 1, file_bytes, counts, first, None, 0, 0, reason, torn=False
        )

    def report() -> SegmentReport:
        return inspect_folder(folder).segments[-1]

    assert report() == told(file_bytes=0, counts=False, first=None, reason=None)
    store.check_owner()
    assert report() == told(file_bytes=44, counts=True, first=5, reason=None)
    path = folder / segment_name(3, 1)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    damage = "at offset 0, its header does not fit its checksum"
    assert report() == told(file_bytes=44, counts=False, first=None, reason=damage)


def test_a_segment_of_an_owner_that_was_fenced_off_does_not_count_even_before_the_snapshot(tmp_path):
    create_folder(tmp_path, b"born", version=7)
    fenced, later = Store(tmp_path, epoch=1), Store(tmp_path, epoch=2)
    fenced.recover()
    later.recover()
    for store in (fenced, later):
        store.append(b"one", version=3)
        store.sync()
    with pytest.raises(Fenced):
        fenced.check_owner()
    # The later owner dies before it removes what its snapshot makes obsolete.
    writer = SnapshotWriter(tmp_path, 2, RealFiles())
    writer.save_snapshot([b"saved"], version=7, sequence=later.begin_snapshot())
    counts = [(one.epoch, one.number, one.counts) for one in inspect_folder(tmp_path).segments]
    assert counts == [(1, 1, False), (2, 1, True), (2, 2, False)]


def test_only_an_inspection_reads_segments_that_the_snapshot_replaces(folder):
    class Unreadable(RealFiles):
        def read_start(self, path: Path, bytes_: int) -> bytes:
            if path.name == segment_name(1, 1):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return super().read_start(path, bytes_)

    assert [one.payload for one in read_only(folder, Unreadable()).records] == [b"second of 2"]
    with pytest.raises(StorageError, match=os.strerror(errno.EIO)):
        inspect_folder(folder, Unreadable())


def test_files_that_go_meanwhile_are_left_out(folder):
    gone = {snapshot_name(0), snapshot_name(1), segment_name(1, 1)}

    class Going(RealFiles):
        def read(self, path: Path) -> bytes:
            if path.name in gone:
                path.unlink()
            return super().read(path)

    report = inspect_folder(folder, Going())
    assert [one.name for one in report.snapshots] == [snapshot_name(3)]
    assert [one.name for one in report.segments] == [
        segment_name(1, 2),
        segment_name(2, 1),
        segment_name(2, 2),
    ]


def test_a_snapshot_under_the_name_of_another_is_told(folder):
    (folder / snapshot_name(2)).write_bytes((folder / snapshot_name(1)).read_bytes())
    snapshots = inspect_folder(folder).snapshots
    assert [one.reason for one in snapshots] == [None, None, "its header names number 1", None]


def test_a_torn_tail_is_told_with_its_offset(folder):
    path = folder / segment_name(2, 2)
    path.write_bytes(path.read_bytes()[:-1])
    report = inspect_folder(folder)
    last = report.segments[-1]
    assert (last.torn, last.records, last.last, report.sequence) == (True, 0, None, 3)
    assert "at offset 44, record 4" in str(last.reason)
    assert [(one.path, one.reason) for one in report.damage] == [(path, last.reason)]
    assert list(read_only(folder).records) == []


def test_damage_is_told_with_what_a_recovery_would_say(folder):
    path = folder / segment_name(2, 2)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    report = inspect_folder(folder)
    assert report.refusal is not None
    assert "does not fit its checksum" in report.refusal
    with pytest.raises(Damaged) as caught:
        read_only(folder)
    with pytest.raises(Damaged) as again:
        Store(folder).recover()
    assert str(caught.value) == str(again.value) == report.refusal


def test_damaged_snapshots_are_told(folder):
    path = folder / snapshot_name(3)
    path.write_bytes(path.read_bytes()[:-1])
    report = inspect_folder(folder)
    assert "should have 5" in str(report.snapshots[-1].reason)
    assert (report.snapshot_sequence, report.sequence) == (1, 4)
    Store(folder).recover()
    assert inspect_folder(folder).set_aside == (f"{path.name}.damaged",)


def test_a_missing_folder_is_told(tmp_path):
    report = inspect_folder(tmp_path / "none")
    assert "there is none" in str(report.refusal)
    assert report.epoch == 0
    with pytest.raises(NothingUsable):
        read_only(tmp_path / "none")
