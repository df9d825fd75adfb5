"""A journal: when it begins a segment, which room it reserves, and what is on the disk when."""

import errno
import os
from pathlib import Path

import pytest

from snapshots.errors import NoRoom, StorageError, SyncFailed
from snapshots.files import OpenFile
from snapshots.format.file_names import segment_name
from tests.crash.model.history import FOLDER
from tests.crash.model.memory_disk import MemoryDisk, MemoryFile
from tests.faulty_files import FaultyFiles
from tests.unit.snapshots.owners import after_a_crash, opened, recovered, write

HEADER, RECORD = 44, 40
"""The bytes of a segment's header, and of a record without its payload."""


class SmallDisk(MemoryDisk):
    """A disk in memory on which each file has room for so many bytes."""

    def __init__(self, disk: MemoryDisk, file_bytes_max: int = 1 << 40) -> None:
        super().__init__(disk.image())
        self.file_bytes_max = file_bytes_max
        self.reserved: list[tuple[int, int]] = []
        """From where to where."""
        self.released: list[int] = []

    def create(self, path: Path) -> OpenFile:
        super().create(path)
        return SmallFile(self, self.live[path.name])


class SmallFile(MemoryFile):
    _disk: SmallDisk

    def reserve(self, begin: int, bytes_: int) -> None:
        if begin + bytes_ > self._disk.file_bytes_max:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.reserved.append((begin, begin + bytes_))

    def release(self, end: int) -> None:
        self._disk.released.append(end)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_segment_takes_records_until_it_is_as_long_as_it_may_be(folder):
    write(opened(folder, 1, segment_bytes_max=HEADER + RECORD + 3), b"one", b"two")
    write(opened(folder, 2, segment_bytes_max=HEADER + RECORD + 4), b"333", b"444")
    lengths = [path.stat().st_size for path in sorted(folder.glob("journal-*-00000[1-9].rdj"))]
    assert lengths == [HEADER + RECORD + 3] * 2 + [HEADER + 2 * (RECORD + 3)]


@pytest.mark.parametrize("has_room", [False, True])
def test_a_record_goes_where_room_is_reserved_for_it(folder, has_room):
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    store = opened(folder, 1, files, segment_bytes_max=50)
    if has_room:
        store.reserve(1_000)
    write(store, b"one")
    files.fail_next("create")
    store.reserve(3)
    files.fails_at = None
    store.append(b"two", version=3)
    assert store.segment_count == 1
    store.append(b"three", version=3)
    assert store.segment_count == 2


def test_the_first_record_reserves_whole_blocks(disk):
    small = SmallDisk(disk)
    store = opened(FOLDER, 1, small)
    store.reserve(4096 - HEADER - RECORD)
    store.reserve(4097 - HEADER - RECORD)
    assert small.reserved == [(0, 4096), (0, 8192)]


def test_a_later_record_reserves_room_from_the_end_of_the_file_on_for_others_too(disk):
    small = SmallDisk(disk)
    store = write(opened(FOLDER, 1, small), b"one")
    begin = HEADER + RECORD + 3
    store.reserve(1_000)
    ((reserved_from, to),) = small.reserved
    assert reserved_from == begin
    assert to > begin + RECORD + 1_000
    store.release()
    assert small.released == [begin]


@pytest.mark.parametrize("first", [b"", b"one"])
def test_a_record_that_fits_to_the_byte_is_reserved_once_and_a_longer_one_is_refused(disk, first):
    small = SmallDisk(disk)
    store = opened(FOLDER, 1, small)
    taken_bytes = HEADER
    if first:
        write(store, first)
        taken_bytes += RECORD + len(first)
    small.file_bytes_max = taken_bytes + RECORD + 10
    with pytest.raises(NoRoom, match="has no room for 11 more bytes"):
        store.reserve(11)
    assert small.reserved == []
    store.reserve(10)
    store.reserve(10)
    assert len(small.reserved) == 1
    write(store, b"x" * 10)


def test_a_disk_that_fails_is_not_asked_for_less_room(folder):
    files = FaultyFiles(error=errno.EIO)
    store = write(opened(folder, 1, files), b"one")
    files.fail_next("reserve")
    with pytest.raises(NoRoom, match="Input/output error"):
        store.reserve(10)
    assert files.calls[-1] == "reserve"
    write(store, b"two")


def test_without_room_for_a_header_there_is_no_snapshot_and_the_journal_goes_on(folder):
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    store = opened(folder, 1, files)
    files.fail_next("reserve", "write")
    with pytest.raises(NoRoom):
        store.begin_snapshot()
    files.fails_at = None
    write(store, b"one")
    assert recovered(folder) == (b"born", [b"one"])


def test_a_sync_without_a_new_record_does_nothing(folder):
    files = FaultyFiles()
    store = opened(folder, 1, files)
    store.sync()
    write(store, b"one").sync()
    assert files.calls.count("sync_data") == 1


def test_a_record_may_be_written_before_what_it_continues_is_settled(folder):
    write(opened(folder, 1), b"one")
    store = opened(folder, 2)
    store.append(b"two", version=3)
    store.check_owner()
    assert not store.unsynced
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_an_answer_without_a_record_comes_after_the_header_is_on_the_disk(disk):
    write(opened(FOLDER, 1, disk), b"one")
    opened(FOLDER, 2, disk).check_owner()
    assert {len(image[segment_name(2, 1)]) for image in after_a_crash(disk)} == {HEADER}


def test_a_current_segment_that_is_gone_or_replaced_is_missing(folder):
    store = opened(folder, 1)
    assert store.missing() is None
    write(store, b"one")
    assert store.missing() is None
    path = folder / segment_name(1, 1)
    data = path.read_bytes()
    path.unlink()
    assert store.missing() == path
    path.write_bytes(data)
    assert store.missing() == path


def test_a_segment_is_on_the_disk_before_the_next_one_begins_and_so_is_the_name_of_that(disk):
    store = opened(FOLDER, 1, disk, segment_bytes_max=50)
    store.append(b"one", version=3)
    store.append(b"two", version=3)
    for image in after_a_crash(disk):
        assert len(image[segment_name(1, 1)]) == HEADER + RECORD + 3
        assert segment_name(1, 2) in image


def test_a_sector_of_a_first_record_of_zeros_that_was_lost_is_a_torn_write(folder):
    # It begins in the middle of one sector and ends in the next: none of its own sectors is whole.
    write(opened(folder, 1), bytes(520))
    path = folder / segment_name(1, 1)
    path.write_bytes(path.read_bytes()[:512] + bytes(HEADER + RECORD + 520 - 512))
    assert recovered(folder) == (b"born", [])


def test_a_journal_keeps_one_file_open_and_none_once_it_is_closed(folder):
    before = descriptors()
    store = opened(folder, 1, segment_bytes_max=50)
    store.reserve(1_000)
    write(store, b"one", b"two", b"three")
    assert descriptors() == before + 2, "one is the claim"
    store.close()
    assert descriptors() == before


def test_no_file_stays_open_where_a_new_segment_cannot_be_synced(folder):
    before = descriptors()
    files = FaultyFiles()
    store = write(opened(folder, 1, files), b"one")
    files.fail_next("sync_folder")
    with pytest.raises(SyncFailed):
        store.begin_snapshot()
    store.close()
    assert descriptors() == before
    assert isinstance(store.broken, StorageError)
