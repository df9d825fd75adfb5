"""What a store keeps: what is appended, what a snapshot stands for, and what an owner leaves."""

import errno
import os
import queue
import threading
import time

import pytest

from snapshots.errors import (
    NoRoom,
    StorageError,
)
from snapshots.folders import create_folder
from snapshots.format.file_names import CLAIM_NUMBER, segment_name, snapshot_name
from snapshots.format.pages import Page
from snapshots.format.snapshot_file import Snapshot
from snapshots.store import Store
from tests.faulty_files import FaultyFiles
from tests.unit.snapshots.owners import change, names, opened, recovered, save, write


def test_a_folder_is_born_with_a_snapshot_and_may_be_born_twice(folder):
    create_folder(folder, b"born again", version=8)
    found = Store(folder).recover()
    assert found.snapshot == Snapshot(epoch=0, sequence=0, version=7, body=b"born")
    assert list(found.records) == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_was_appended_is_found_by_the_next_owner_with_its_place(folder):
    write(opened(folder, 4), b"one", b"", b"three")
    found = Store(folder, epoch=9).recover()
    path = folder / segment_name(4, 1)
    assert [(one.sequence, one.version, one.payload, one.path) for one in found.records] == [
        (1, 3, b"one", path),
        (2, 3, b"", path),
        (3, 3, b"three", path),
    ]
    assert [one.offset for one in found.records] == [44, 44 + 43, 44 + 43 + 40]
    assert list(found.records) == list(found.records)


def test_a_snapshot_stands_for_what_came_before_it(folder):
    store = write(opened(folder), b"one", b"two")
    assert store.journal_bytes == 44 + 2 * 43
    born_us, before_us = store.snapshot_us, time.time_ns() // 1_000
    assert born_us is not None
    assert before_us - 60_000_000 < born_us <= before_us
    save(store)
    assert (store.journal_bytes, store.snapshot_sequence) == (0, 2)
    assert store.snapshot_us is not None
    assert before_us <= store.snapshot_us <= time.time_ns() // 1_000
    write(store, b"three")
    assert recovered(folder) == (b"saved", [b"three"])
    os.utime(folder / snapshot_name(2), (7, 7))
    later = Store(folder)
    later.recover()
    assert later.snapshot_us == 7_000_000


def test_snapshots_may_be_saved_by_another_thread_while_records_are_appended(folder):
    store = opened(folder, snapshots_kept=1, segment_bytes_max=500)
    wanted: queue.Queue[tuple[int, bytes] | None] = queue.Queue()

    def save_all() -> None:
        while (one := wanted.get()) is not None:
            sequence, body = one
            store.save([body], version=7, sequence=sequence)

    thread = threading.Thread(target=save_all)
    thread.start()
    for number in range(1, 101):
        store.reserve(10)
        write(store, b"%d" % number)
        if number % 10 == 0:
            wanted.put((store.begin_snapshot(), b"after %d" % number))
    wanted.put(None)
    thread.join()
    write(store, b"101")
    assert (store.snapshot_sequence, store.segment_count) == (100, 1)
    assert recovered(folder) == (b"after 100", [b"101"])


def test_the_newest_few_snapshots_are_kept_and_the_segments_that_they_need(folder):
    store = opened(folder, 1, snapshots_kept=2)
    for number in range(1, 6):
        write(store, b"%d" % number)
        save(store, b"after %d" % number)
    assert names(folder) == [
        segment_name(1, CLAIM_NUMBER),
        segment_name(1, 5),
        segment_name(1, 6),
        snapshot_name(4),
        snapshot_name(5),
    ]
    assert store.segment_count == 2
    change(folder / snapshot_name(5), 50)
    assert recovered(folder) == (b"after 4", [b"5"])


def test_the_journal_is_as_long_as_what_no_snapshot_includes(folder):
    first = write(opened(folder, 1, segment_bytes_max=50), b"one", b"two")
    assert first.journal_bytes == 2 * (44 + 43)
    store = opened(folder, 2, segment_bytes_max=50)
    assert store.journal_bytes == 2 * 43
    sequence = write(store, b"333").begin_snapshot()
    write(store, b"444", b"555")
    assert store.journal_bytes == 2 * 43 + 3 * (44 + 43)
    store.save([b"saved"], version=7, sequence=sequence)
    assert store.journal_bytes == 2 * (44 + 43)


def test_a_snapshot_is_as_old_as_the_clock_of_its_owner_says(folder):
    store = write(opened(folder, now_us=lambda: 5_000_000), b"one")
    save(store)
    assert store.snapshot_us == 5_000_000


def test_a_snapshot_of_an_owner_that_leaves_begins_no_segment(folder):
    store = write(opened(folder, 1), b"one")
    store.append(b"two", version=3)
    sequence = store.begin_snapshot(goes_on=False)
    store.save([b"saved"], version=7, sequence=sequence)
    assert (sequence, store.unsynced) == (2, False)
    assert segment_name(1, 2) not in names(folder)


def test_an_owner_that_saves_without_a_record_says_whose_history_it_continues(folder):
    write(opened(folder, 1), b"one")
    save(opened(folder, 2))
    write(opened(folder, 3), b"two")
    change(folder / snapshot_name(1), 50)
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_an_owner_that_continues_nothing_writes_nothing_before_its_first_record(folder):
    files = FaultyFiles()
    opened(folder, files=files).check_owner()
    assert {"write", "sync_data"}.isdisjoint(files.calls)


def test_a_folder_without_room_for_the_header_has_no_owner(folder):
    write(opened(folder), b"one")
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    files.fail_next("reserve")
    with pytest.raises(NoRoom):
        Store(folder, files=files).recover()


def test_a_page_that_replaces_one_whose_snapshot_was_never_saved_stays(folder):
    def save_page(store: Store, body: bytes) -> int:
        sequence = store.begin_snapshot()
        store.save_page(body, version=2, sequence=sequence, expires_us=2**62)
        return sequence

    save_page(write(opened(folder), b"one"), b"of an owner that died")
    store = Store(folder)
    assert list(store.recover().pages) == []
    store.save([b"saved"], version=7, sequence=save_page(store, b"of the next one"))
    assert list(Store(folder).recover().pages) == [Page(2, b"of the next one")]


def test_a_store_that_was_closed_takes_nothing_more_and_saves_nothing(folder):
    store = write(opened(folder), b"one")
    sequence = store.begin_snapshot()
    store.close()
    files = names(folder)
    for refused in (
        lambda: store.append(b"", version=3),
        store.sync,
        store.check_owner,
        store.begin_snapshot,
        lambda: store.save([b"saved"], version=7, sequence=sequence),
    ):
        with pytest.raises(StorageError, match="was closed"):
            refused()
    assert names(folder) == files


def test_a_snapshot_is_given_up_where_the_store_is_closed_meanwhile(folder):
    store = write(opened(folder), b"one")
    sequence = store.begin_snapshot()

    def chunks():
        yield b"begun"
        store.close()
        yield b"and never named"

    with pytest.raises(StorageError, match="was closed"):
        store.save(chunks(), version=7, sequence=sequence)
    assert recovered(folder) == (b"born", [b"one"])


def test_a_snapshot_may_be_saved_again_though_no_record_came_since(folder):
    store = write(opened(folder), b"one")
    for body in (b"first", b"second"):
        assert save(store, body).snapshot_sequence == 1
    assert recovered(folder) == (b"second", [])
    assert store.journal_bytes == 0


def test_files_of_others_are_left_alone(folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "journal-1-1.rdj").write_text("not quite a name of ours")
    store = write(opened(folder, snapshots_kept=1), b"one")
    save(store)
    assert {"notes.txt", "journal-1-1.rdj"} < set(names(folder))


def test_a_journal_of_more_segments_than_a_name_was_made_for_is_read_to_its_end(folder):
    store = write(opened(folder, segment_bytes_max=1), b"0")
    store._journal._number = 999_997
    for payload in (b"1", b"2", b"3", b"4"):
        write(store, payload)
    store.close()
    assert recovered(folder) == (b"born", [b"0", b"1", b"2", b"3", b"4"])


def test_owners_that_write_nothing_leave_nothing_behind(folder):
    first = write(opened(folder), b"1")
    save(first)
    first.close()
    before = len(names(folder))
    for _ in range(3):
        store = opened(folder)
        store.reserve(100)
        store.close()
    assert len(names(folder)) == before
