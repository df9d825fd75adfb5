"""Who may write: an owner is fenced off by a later one, whatever happens to the folder meanwhile."""

import errno
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from snapshots.errors import (
    Fenced,
    Hole,
    StorageError,
)
from snapshots.files import OpenFile, RealFiles
from snapshots.folders import create_folder, destroy_folder
from snapshots.format.file_names import CLAIM_NUMBER, segment_name
from snapshots.inspection import read_only
from snapshots.store import Store
from tests.faulty_files import FaultyFiles
from tests.unit.snapshots.owners import names, opened, recovered, write


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


def test_the_owner_of_a_folder_that_was_removed_is_fenced_off(folder):
    store = opened(folder)
    destroy_folder(folder)
    with pytest.raises(Fenced, match="was removed"):
        store.check_owner()
    destroy_folder(folder)
    assert not folder.exists()


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
