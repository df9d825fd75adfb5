"""A store: what it recovers, what it refuses, who may write, what it removes."""

import errno
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from snapshots.errors import (
    Damaged,
    Fenced,
    Hole,
    NoRoom,
    NothingUsable,
    StorageError,
    SyncFailed,
    WriteFailed,
)
from snapshots.files import OpenFile, RealFiles
from snapshots.folders import create_folder, destroy_folder
from snapshots.format.file_names import CLAIM_NUMBER, listing, segment_name, snapshot_name
from snapshots.format.pages import Page
from snapshots.format.snapshot_file import Snapshot, encode
from snapshots.inspection import read_only
from snapshots.store import Store
from snapshots.takeover.recovered import Recovered
from snapshots.write.snapshot_writer import SnapshotWriter
from tests.faulty_files import FaultyFiles
from tests.unit.snapshots.owners import opened, write


def save(store: Store, body: bytes = b"saved") -> int:
    sequence = store.begin_snapshot()
    store.save([body], version=7, sequence=sequence)
    return sequence


def recovered(folder: Path) -> tuple[bytes | None, list[bytes]]:
    found = Store(folder).recover()
    return found.snapshot and found.snapshot.body, [record.payload for record in found.records]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def change(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


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


def test_numbers_go_on_over_owners_and_segments(folder):
    everything = []
    for epoch in range(1, 6):
        store = Store(folder, epoch=epoch, segment_bytes_max=100)
        assert [one.payload for one in store.recover().records] == everything
        for number in range(epoch):
            payload = b"%d-%d" % (epoch, number)
            store.reserve(len(payload))
            assert store.append(payload, version=1) == len(everything) + 1
            everything.append(payload)
            write(store)
    assert recovered(folder) == (b"born", everything)
    assert len(names(folder)) > 6


def test_a_snapshot_stands_for_what_came_before_it(folder):
    store = write(opened(folder), b"one", b"two")
    assert store.journal_bytes == 44 + 2 * 43
    born_us, before_us = store.snapshot_us, time.time_ns() // 1_000
    assert born_us is not None
    assert before_us - 60_000_000 < born_us <= before_us
    assert save(store) == 2
    assert (store.journal_bytes, store.snapshot_sequence) == (0, 2)
    assert store.snapshot_us is not None
    assert before_us <= store.snapshot_us <= time.time_ns() // 1_000
    write(store, b"three")
    assert recovered(folder) == (b"saved", [b"three"])
    os.utime(folder / snapshot_name(2), (7, 7))
    later = Store(folder)
    later.recover()
    assert later.snapshot_us == 7_000_000


def test_what_is_appended_while_a_snapshot_is_taken_comes_after_it(folder):
    store = write(opened(folder), b"one")
    sequence = store.begin_snapshot()

    def chunks():
        yield b"sa"
        write(store, b"two")
        yield b"ved"

    store.save(chunks(), version=7, sequence=sequence)
    assert store.journal_bytes == 44 + 43
    assert recovered(folder) == (b"saved", [b"two"])


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


def test_three_snapshots_are_kept_if_no_other_number_is_given(folder):
    store = opened(folder)
    for number in range(1, 5):
        save(write(store, b"%d" % number))
    assert [name for name in names(folder) if name.startswith("snapshot-")] == [
        snapshot_name(number) for number in (2, 3, 4)
    ]


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


def test_an_owner_is_fenced_off_by_a_later_claim_alone(folder):
    first = write(opened(folder, 1), b"one")
    opened(folder, 2)
    first.append(b"never answered", version=3)
    first.sync()
    with pytest.raises(Fenced):
        first.check_owner()
    for refused in (
        lambda: first.append(b"", version=3),
        first.sync,
        first.begin_snapshot,
        first.check_owner,
    ):
        with pytest.raises(Fenced):
            refused()


@pytest.mark.parametrize("epoch", [1, 2])
def test_an_epoch_is_owned_once_and_no_earlier_one_after_it(folder, epoch):
    opened(folder, 2)
    with pytest.raises(Fenced):
        Store(folder, epoch=epoch).recover()


def test_what_a_fenced_owner_writes_after_the_cut_is_never_read(folder):
    first = write(opened(folder, 1), b"one")
    second = opened(folder, 2)
    first.append(b"late", version=3)
    first.sync()
    write(second, b"two")
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_a_fenced_owner_that_never_wrote_cannot_cut_any_more(folder):
    first = opened(folder, 1)
    second = opened(folder, 2)
    first.append(b"one", version=3)
    third = opened(folder, 3)
    assert third.sequence == 1
    second.append(b"another one", version=3)
    second.sync()
    write(third, b"two")
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_what_was_read_is_settled_before_anyone_sees_what_it_makes(folder):
    first = write(opened(folder, 1), b"one")
    second = opened(folder, 2)
    first.append(b"late", version=3)
    # An answer without a record needs the header, too.
    second.check_owner()
    assert opened(folder, 3).sequence == second.sequence == 1


def test_who_reads_finds_what_was_answered_before_a_segment_that_continues_it(folder):
    """A small segment is read whole with its header, while its owner may still answer."""
    listed, go_on, found = threading.Event(), threading.Event(), list[bytes]()
    first, second = write(opened(folder, 1), b"one"), Store(folder, epoch=2)

    class Paused(RealFiles):
        def read_start(self, path: Path, bytes_: int) -> bytes:
            start = super().read_start(path, bytes_)
            listed.set()
            go_on.wait(10)
            return start

    def read() -> None:
        found.extend(record.payload for record in read_only(folder, Paused()).records)

    reader = threading.Thread(target=read)

    class Claiming(RealFiles):
        def sync_folder(self, folder: Path) -> None:
            super().sync_folder(folder)
            if not reader.ident:
                reader.start()
                assert listed.wait(10)
                write(first, b"two")

    second._files = Claiming()
    second.recover()
    write(second, b"three")
    go_on.set()
    reader.join()
    assert found[:2] == [b"one", b"two"]


def test_an_owner_that_releases_the_folder_leaves_nothing_to_do_for_the_next_one(folder):
    write(opened(folder, 1), b"one").release()
    assert not any(segment_name(1, CLAIM_NUMBER) in name for name in names(folder))
    files = FaultyFiles()
    second = opened(folder, 2, files=files)
    assert {"write_again", "sync_data", "remove"}.isdisjoint(files.calls)
    assert [files.calls.count(call) for call in ("sync_folder", "names", "read")] == [1, 2, 1]
    write(second, b"two")
    assert files.calls.count("sync_data") == 1, "the header comes to the disk with the first record"
    second.release()
    assert not read_only(folder).released, "only who claims a folder finds that out"
    found = Store(folder, epoch=3).recover()
    assert (found.released, [record.payload for record in found.records]) == (True, [b"one", b"two"])


def test_an_owner_that_cannot_vouch_for_the_disk_leaves_its_claim(folder):
    def unsynced(store: Store) -> None:
        store.append(b"unsynced", version=3)

    def broken(store: Store) -> None:
        store.broken = StorageError("it broke")

    def only_looked(_: Store) -> None:
        """An earlier owner may write after it has looked, which counts if this one has no header."""

    for epoch, what in enumerate((unsynced, broken, only_looked), start=2):
        first = write(opened(folder, 10 * epoch), b"one")
        store = opened(folder, 10 * epoch + 1)
        if what is not only_looked:
            store.check_owner()
        what(store)
        first.append(b"late", version=3)
        store.release()
        assert segment_name(10 * epoch + 1, CLAIM_NUMBER) in names(folder), what
        files = FaultyFiles()
        assert not Store(folder, epoch=10 * epoch + 2, files=files).recover().released
        assert "write_again" in files.calls


def test_an_owner_that_was_fenced_off_takes_nobody_elses_claim_when_it_releases_the_folder(folder):
    first = write(opened(folder, 1), b"one")
    second = opened(folder, 2)
    first.release()
    write(second, b"two")


def test_a_snapshot_cuts_off_earlier_owners_too(folder):
    first = write(opened(folder, 1), b"one")
    second = opened(folder, 2)
    first.append(b"late", version=3)
    save(second)
    assert recovered(folder) == (b"saved", [])


def test_a_fenced_owner_can_finish_no_snapshot(folder):
    first = write(opened(folder, 1), b"one")
    sequence = first.begin_snapshot()

    def chunks():
        yield b"la"
        opened(folder, 2)
        yield b"te"

    with pytest.raises(Fenced):
        first.save(chunks(), version=7, sequence=sequence)
    assert recovered(folder) == (b"born", [b"one"])


def test_the_owner_of_a_folder_that_was_removed_is_fenced_off(folder):
    store = opened(folder)
    destroy_folder(folder)
    with pytest.raises(Fenced, match="was removed"):
        store.check_owner()
    destroy_folder(folder)
    assert not folder.exists()


def test_the_owner_of_a_folder_that_was_made_anew_is_fenced_off(folder):
    store = opened(folder, 1)
    destroy_folder(folder)
    create_folder(folder, b"born again", version=7)
    write(opened(folder, 1), b"one")
    with pytest.raises(Fenced, match="was removed"):
        store.check_owner()


class Meanwhile(RealFiles):
    """Real files; something happens before the first one is made."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what: Callable[[], object] | None = what

    def create(self, path: Path) -> OpenFile:
        what, self._what = self._what, None
        if what is not None:
            what()
        return super().create(path)


def test_a_claim_whose_name_somebody_takes_again_is_still_gone(folder):
    first, second = Store(folder), Store(folder)

    def meanwhile() -> None:
        first.recover()
        write(first, b"one")
        second.recover()

    # It looks for the next epoch before anybody else has that, and claims it when nobody has it any more.
    with pytest.raises(Fenced):
        Store(folder, files=Meanwhile(meanwhile)).recover()
    assert segment_name(first.epoch or 0, CLAIM_NUMBER) in names(folder)
    first.append(b"never answered", version=3)
    first.sync()
    with pytest.raises(Fenced):
        first.check_owner()
    write(second, b"two")
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_an_owner_that_comes_between_the_listing_and_the_claim_of_a_later_one_is_fenced_off(folder):
    first = Store(folder, epoch=1)

    def meanwhile() -> None:
        first.recover()
        write(first, b"one")

    second = Store(folder, epoch=2, files=Meanwhile(meanwhile))
    assert [record.payload for record in second.recover().records] == [b"one"]
    first.append(b"never answered", version=3)
    first.sync()
    with pytest.raises(Fenced):
        first.check_owner()
    write(second, b"two")


def test_an_owner_gives_up_if_a_later_one_has_come_before_its_claim(folder):
    second = Store(folder, epoch=2, files=Meanwhile(lambda: opened(folder, 3)))
    with pytest.raises(Fenced, match="owned by epoch 3, and this is epoch 2"):
        second.recover()


class NamesWhileOneComes(RealFiles):
    """Real files; a directory read while a later owner comes lacks its files, and those that went.

    POSIX says so of readdir.
    """

    later: Callable[[], object] | None = None

    def names(self, folder: Path) -> list[str]:
        before = super().names(folder)
        if self.later is None:
            return before
        later, self.later = self.later, None
        later()
        return [name for name in before if (folder / name).exists()]


def test_a_claim_that_went_while_the_names_were_read_went_to_a_later_owner(folder):
    files = NamesWhileOneComes()
    first = write(opened(folder, 1, files=files), b"one")
    files.later = lambda: opened(folder, 2)
    with pytest.raises(Fenced, match="later than 1"):
        first.save([b"late"], version=7, sequence=first.begin_snapshot())
    assert files.later is None


def test_a_claim_that_has_a_second_name_elsewhere_still_gives_way(folder, tmp_path):
    first = write(opened(folder, 1), b"one")
    # A backup of names alone, which takes no room.
    (tmp_path / "backup").hardlink_to(folder / segment_name(1, CLAIM_NUMBER))
    first.check_owner()
    opened(folder, 2)
    first.append(b"never answered", version=3)
    first.sync()
    with pytest.raises(Fenced, match="later than 1"):
        first.check_owner()


@pytest.mark.parametrize("copied", [False, True])
def test_the_owner_of_a_folder_that_was_moved_away_is_fenced_off(folder, tmp_path, copied):
    store = write(opened(folder, 1), b"one")
    folder.rename(tmp_path / "moved")
    if copied:
        shutil.copytree(tmp_path / "moved", folder)
    store.append(b"never answered", version=3)
    store.sync()
    with pytest.raises(Fenced, match="was removed"):
        store.check_owner()


def test_no_descriptor_is_left_of_claims(folder):
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for epoch in range(1, 4):
        store = opened(folder, epoch)
        with pytest.raises(Fenced):
            Store(folder, epoch=epoch).recover()
        write(store, b"one").close()
    (folder / segment_name(1, 1)).unlink()
    with pytest.raises(Hole):
        Store(folder).recover()
    assert len(list(descriptors.iterdir())) == before


def test_no_descriptor_is_left_where_recovering_fails(tmp_path):
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    failed = set[str]()
    for calls in range(30):
        folder = tmp_path / str(calls)
        create_folder(folder, b"born", version=7)
        write(opened(folder), b"one").close()
        files = FaultyFiles(fails_at=calls, error=errno.ENOSPC)
        store = Store(folder, files=files)
        with suppress(StorageError):
            store.recover()
            store.check_owner()
        failed.update(files.calls[calls : calls + 1])
        store.close()
        assert len(list(descriptors.iterdir())) == before, files.calls
    assert failed >= {"create", "sync_folder", "read", "write_again", "reserve", "write", "sync_data"}


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


def test_a_torn_tail_is_kept_aside_once_and_reported_until_it_is_superseded(folder):
    write(opened(folder, 1), b"one")
    path = folder / segment_name(1, 1)
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(3):
        store = Store(folder)
        (damage,) = store.recover().damage
        assert damage.path.name == f"{path.name}.torn"
        assert damage.path.read_bytes() == path.read_bytes()[44:]
        assert "at offset 44, record 1" in str(damage)
    write(store, b"another one")
    found = Store(folder).recover()
    assert [one.payload for one in found.records] == [b"another one"]
    assert found.damage == ()


def test_a_torn_header_is_kept_aside_and_says_nothing(folder):
    write(opened(folder, 1), b"one")
    write(opened(folder, 2), b"two")
    path = folder / segment_name(2, 1)
    path.write_bytes(path.read_bytes()[:30])
    (damage,) = Store(folder).recover().damage
    assert damage.path.name == f"{path.name}.torn"
    assert recovered(folder) == (b"born", [b"one"])


def test_a_flipped_bit_is_damage_and_a_sector_of_zeros_a_torn_write(folder):
    write(opened(folder, 1), b"one", b"x" * 2_000)
    path = folder / segment_name(1, 1)
    whole = path.read_bytes()
    change(path, 1100)
    messages = set()
    for _ in range(2):
        with pytest.raises(Damaged, match="at offset 87, record 2 does not fit its checksum") as caught:
            Store(folder).recover()
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert (folder / f"{path.name}.damaged").read_bytes() == path.read_bytes()
    assert not (folder / f"{path.name}.damaged-2").exists()
    path.write_bytes(whole[:1024] + bytes(512) + whole[1536:])
    assert recovered(folder) == (b"born", [b"one"])


def test_zeros_before_a_record_that_knew_them_to_be_written_are_damage(folder):
    store = write(opened(folder, 1), b"one", b"x" * 2_000)
    write(store, b"three")
    path = folder / segment_name(1, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:1024] + bytes(512) + whole[1536:])
    with pytest.raises(Damaged, match=r"record 3 at offset .* says that it was on the disk"):
        Store(folder).recover()


def test_zeros_before_records_of_the_same_sync_are_a_torn_write(folder):
    store = write(opened(folder, 1), b"one")
    write(store, b"x" * 2_000, b"three")
    path = folder / segment_name(1, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:1024] + bytes(512) + whole[1536:])
    assert recovered(folder) == (b"born", [b"one"])


def test_a_bad_record_in_a_segment_that_was_left_is_damage_even_at_its_end(folder):
    store = write(opened(folder, 1), b"one")
    store.begin_snapshot()
    write(store, b"two")
    path = folder / segment_name(1, 1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match=path.name):
        Store(folder).recover()


def test_a_segment_with_a_damaged_header_is_damage_though_its_owner_went_on_in_another(folder):
    store = write(opened(folder, 5), b"one")
    store.begin_snapshot()
    write(store, b"two")
    change(folder / segment_name(5, 1), 8)
    with pytest.raises(Damaged, match=segment_name(5, 1)):
        Store(folder).recover()


def test_a_missing_segment_is_a_hole(folder):
    store = opened(folder, 1)
    for payload in (b"one", b"two", b"three"):
        write(store, payload)
        store.begin_snapshot()
    (folder / segment_name(1, 2)).unlink()
    for _ in range(2):
        with pytest.raises(Hole, match=r"ends with record 1 .* begins with record 3"):
            Store(folder).recover()


def test_a_later_owner_knew_what_is_missing(folder):
    write(opened(folder, 1), b"one", b"two")
    write(opened(folder, 2), b"three")
    path = folder / segment_name(1, 1)
    path.write_bytes(path.read_bytes()[:87])
    with pytest.raises(Hole, match="a later owner found records up to 2"):
        Store(folder).recover()


def test_a_damaged_snapshot_is_passed_over_only_where_the_journal_reaches_as_far(folder):
    store = write(opened(folder, 1), b"one", b"two")
    save(store)
    change(folder / snapshot_name(2), 49)
    found = Store(folder).recover()
    assert [one.payload for one in found.records] == [b"one", b"two"]
    assert [damage.path.name for damage in found.damage] == [f"{snapshot_name(2)}.damaged"]
    for path in folder.glob("journal-*"):
        path.unlink()
    for _ in range(2):
        with pytest.raises(Hole, match="once had a snapshot of record 2"):
            Store(folder).recover()


def test_a_damaged_snapshot_stays_until_there_is_another_and_its_copy_for_ever(folder):
    store = write(opened(folder, 1), b"one")
    save(store)
    path = folder / snapshot_name(1)
    change(path, 49)
    damaged = path.read_bytes()
    store = opened(folder)
    assert path.read_bytes() == damaged
    opened(folder)
    store = write(opened(folder, snapshots_kept=2), b"two")
    save(store)
    assert not path.exists()
    assert store.segment_count == 3, "the damaged one no longer counts"
    assert (folder / f"{path.name}.damaged").read_bytes() == damaged
    assert not (folder / f"{path.name}.damaged-2").exists()
    assert recovered(folder) == (b"saved", [])


def test_a_damaged_snapshot_is_replaced_by_another_of_the_same_number(folder):
    save(write(opened(folder, 1), b"one"))
    change(folder / snapshot_name(1), 49)
    save(opened(folder), b"again")
    assert recovered(folder) == (b"again", [])


def test_a_snapshot_may_be_saved_again_though_no_record_came_since(folder):
    store = write(opened(folder), b"one")
    for body in (b"first", b"second"):
        assert save(store, body) == 1
    assert recovered(folder) == (b"second", [])
    assert store.journal_bytes == 0


def test_many_owners_that_do_nothing_leave_nothing_behind(folder):
    save(write(opened(folder), b"one"))
    before = len(names(folder))
    for _ in range(10):
        opened(folder).close()
    assert len(names(folder)) == before


def test_no_room_changes_nothing(folder):
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    store = write(opened(folder, files=files), b"one")
    files.fails_at = len(files.calls)
    with pytest.raises(NoRoom):
        store.reserve(1_000)
    files.fails_at = None
    store.reserve(1_000)
    write(store, b"two")
    assert store.broken is None
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_where_there_is_little_room_only_what_is_needed_is_reserved(folder):
    files = FaultyFiles(error=errno.ENOSPC)
    store = write(opened(folder, files=files), b"one")
    files.fails_at = len(files.calls)
    store.reserve(1_000)
    assert files.calls[-2:] == ["reserve", "reserve"]


def test_what_is_reserved_makes_no_file_longer_and_is_given_back(folder):
    store = opened(folder)
    store.reserve(100_000)
    path = folder / segment_name(1, 1)
    assert path.stat().st_size == 0
    if path.stat().st_blocks == 0:
        pytest.skip("this file system cannot reserve")
    write(store, b"one")
    store.close()
    assert path.stat().st_blocks * 512 <= 8192


def test_a_first_short_record_takes_a_block_and_leaves_nothing_to_give_back(folder):
    files = FaultyFiles()
    store = opened(folder, files=files)
    store.reserve(1_000)
    write(store, b"one")
    store.release()
    assert files.calls.count("reserve") == 1
    assert "release" not in files.calls


def test_what_later_records_reserved_is_given_back(folder):
    files = FaultyFiles()
    store = write(opened(folder, files=files), b"one")
    store.reserve(1_000)
    store.reserve(5_000)
    assert files.calls.count("reserve") == 1, "more is reserved than the next record takes"
    write(store, b"two")
    store.close()
    assert files.calls.count("release") == 1


@pytest.mark.parametrize(("call", "kind"), [("write", WriteFailed), ("sync_data", SyncFailed)])
def test_a_failed_write_or_sync_is_the_end_of_a_store(folder, call, kind):
    files = FaultyFiles()
    store = write(opened(folder, files=files), b"one")
    files.fails_at = len(files.calls) + (call == "sync_data")
    with pytest.raises(kind, match=r"journal-.*at offset|journal-.*after offset"):
        write(store, b"two")
    for refused in (
        lambda: store.append(b"", version=3),
        store.sync,
        store.begin_snapshot,
        store.check_owner,
        lambda: store.reserve(1),
        lambda: store.save([b""], version=7, sequence=1),
    ):
        with pytest.raises(kind, match="takes nothing more"):
            refused()
    assert isinstance(store.broken, kind)
    assert recovered(folder)[1][:1] == [b"one"]


@pytest.mark.parametrize("for_good", [False, True])
def test_a_save_that_fails_at_any_call_changes_nothing_and_the_journal_goes_on(folder, for_good):
    calls, acknowledged = 0, False
    while not acknowledged:
        files = FaultyFiles(for_good=for_good)
        store = write(opened(folder, snapshots_kept=1, files=files), b"x")
        sequence = store.begin_snapshot()
        files.fails_at = len(files.calls) + calls
        try:
            store.save([b"saved"], version=7, sequence=sequence)
            acknowledged = True
        except StorageError:
            calls += 1
        files.fails_at = None
        write(store, b"after")
        store.close()
        body, payloads = recovered(folder)
        assert payloads[-1] == b"after"
        assert acknowledged <= (body == b"saved")
    assert calls == 9
    save(opened(folder, snapshots_kept=1))
    assert len(names(folder)) == 3


def test_a_segment_that_cannot_be_left_is_gone_on_with(folder):
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    store = write(opened(folder, files=files, segment_bytes_max=50), b"one")
    create = files.create

    def no_room(path: Path) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.create = no_room
    with pytest.raises(NoRoom):
        store.begin_snapshot()
    write(store, b"two")
    files.create = create
    write(store, b"three")
    assert recovered(folder) == (b"born", [b"one", b"two", b"three"])


def test_files_of_others_are_left_alone(folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "journal-1-1.rdj").write_text("not quite a name of ours")
    store = write(opened(folder, snapshots_kept=1), b"one")
    save(store)
    assert {"notes.txt", "journal-1-1.rdj"} < set(names(folder))


def test_what_a_recovery_gives_is_what_it_says_it_is(folder):
    assert isinstance(Store(folder).recover(), Recovered)


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
