"""A folder of snapshots: what is found again after every fault, and what is refused."""

import errno
import zlib
from pathlib import Path

import pytest

from snapshots.errors import Fenced, NewerFormat, NothingUsable, StorageError
from snapshots.records import Snapshot, encode
from snapshots.snapshot_store import SnapshotStore
from tests.faults import FaultyFiles


def store(folder: Path, epoch: int = 1, **settings: object) -> SnapshotStore:
    return SnapshotStore(folder, epoch=epoch, **settings)


def saved(folder: Path, *bodies: bytes, epoch: int = 1, **settings: object) -> SnapshotStore:
    one = store(folder, epoch, **settings)
    one.load()
    for body in bodies:
        one.save(body, version=5)
    return one


def body_in(folder: Path, epoch: int = 1) -> bytes | None:
    snapshot = store(folder, epoch).load().snapshot
    return None if snapshot is None else snapshot.body


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def numbered(sequence: int) -> str:
    return f"snapshot-{sequence:020d}.rds"


def test_a_folder_that_was_never_written_holds_nothing(tmp_path):
    assert store(tmp_path / "none").load().snapshot is None


def test_the_newest_is_found_with_its_epoch_version_and_sequence(tmp_path):
    saved(tmp_path, b"one", b"two", epoch=4)
    assert store(tmp_path, 9).load().snapshot == Snapshot(epoch=4, sequence=2, version=5, body=b"two")


def test_only_the_newest_few_are_kept(tmp_path):
    saved(tmp_path, *(b"%d" % number for number in range(6)), kept=2)
    assert names(tmp_path) == [numbered(5), numbered(6)]


def test_one_may_be_all_that_is_kept(tmp_path):
    saved(tmp_path, b"one", b"two", kept=1)
    assert names(tmp_path) == [numbered(2)]


def test_a_damaged_one_is_set_aside_and_reported_and_the_one_before_it_used(tmp_path):
    saved(tmp_path, b"one", b"two")
    newest = tmp_path / numbered(2)
    newest.write_bytes(newest.read_bytes()[:-1])
    damaged = newest.read_bytes()
    loaded = store(tmp_path).load()
    assert loaded.snapshot is not None
    assert loaded.snapshot.body == b"one"
    (damage,) = loaded.damage
    assert damage.path.name == f"{numbered(2)}.damaged"
    assert damage.path.read_bytes() == damaged
    assert "its body has 2 bytes and should have 3" in str(damage)


def test_what_was_set_aside_is_never_overwritten(tmp_path):
    saved(tmp_path, b"one")
    for content in (b"broken", b"broken too", b"broken again"):
        (tmp_path / numbered(2)).write_bytes(content)
        store(tmp_path).load()
    aside = [path.read_bytes() for path in sorted(tmp_path.glob("*damaged*"))]
    assert aside == [b"broken", b"broken too", b"broken again"]


def test_one_under_another_number_than_its_own_is_damaged(tmp_path):
    saved(tmp_path, b"one")
    (tmp_path / numbered(9)).write_bytes((tmp_path / numbered(1)).read_bytes())
    loaded = store(tmp_path).load()
    assert loaded.snapshot is not None
    assert loaded.snapshot.sequence == 1
    assert "it says that it is number 1" in str(loaded.damage[0])


def test_where_all_are_damaged_nothing_is_made_up_now_or_later(tmp_path):
    saved(tmp_path, b"one", b"two")
    for sequence in (1, 2):
        (tmp_path / numbered(sequence)).write_bytes(b"")
    with pytest.raises(NothingUsable, match="ends within its header"):
        store(tmp_path).load()
    with pytest.raises(NothingUsable, match="set aside before"):
        store(tmp_path).load()


def test_a_newer_format_is_refused_and_left_as_it_is(tmp_path):
    saved(tmp_path, b"one", b"two")
    newest = tmp_path / numbered(2)
    data = bytearray(encode(Snapshot(epoch=1, sequence=2, version=5, body=b"two")))
    data[8] = 2
    data[44:48] = zlib.crc32(data[:44]).to_bytes(4, "little")
    newest.write_bytes(data)
    with pytest.raises(NewerFormat, match=r"format 2.*up to 1"):
        store(tmp_path).load()
    assert newest.read_bytes() == data


def test_a_later_owner_fences_the_earlier_one_off(tmp_path):
    earlier = saved(tmp_path, b"one", epoch=1)
    saved(tmp_path, b"two", epoch=2)
    with pytest.raises(Fenced):
        earlier.save(b"stale", version=5)
    with pytest.raises(Fenced):
        store(tmp_path, 1).load()
    assert body_in(tmp_path, 3) == b"two"


def test_what_an_earlier_owner_still_writes_does_not_stop_the_later_one(tmp_path):
    earlier = saved(tmp_path, b"one", epoch=1)
    later = store(tmp_path, 2)
    later.load()
    earlier.save(b"late", version=5)
    later.save(b"two", version=5)
    assert body_in(tmp_path, 3) == b"two"
    with pytest.raises(Fenced):
        earlier.save(b"later still", version=5)


def test_an_owner_without_an_epoch_takes_the_next_one(tmp_path):
    for expected in (1, 2, 3):
        one = SnapshotStore(tmp_path)
        one.load()
        one.save(b"", version=1)
        assert one.epoch == expected


def test_what_was_left_unfinished_is_cleared_away(tmp_path):
    saved(tmp_path, b"one")
    (tmp_path / f"{numbered(2)}.1.unfinished").write_bytes(b"half")
    assert body_in(tmp_path) == b"one"
    assert names(tmp_path) == [numbered(1)]


def test_files_of_others_are_left_alone(tmp_path):
    saved(tmp_path, b"one")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "snapshot-1.rds").write_text("not quite a name of ours")
    saved(tmp_path, b"two", b"three", b"four", kept=1, epoch=2)
    assert {"notes.txt", "snapshot-1.rds"} < set(names(tmp_path))


def test_what_is_written_is_for_its_owner_alone(tmp_path):
    folder = tmp_path / "a" / "b"
    saved(folder, b"one")
    assert (folder / numbered(1)).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_is_destroyed_with_all_that_is_in_it(tmp_path):
    folder = tmp_path / "one"
    one = saved(folder, b"one", b"two")
    one.destroy()
    assert names(tmp_path) == []
    one.destroy()


def calls_of_a_save(folder: Path) -> list[str]:
    files = FaultyFiles()
    one = saved(folder, b"older", b"old", kept=2, files=files)
    before = len(files.calls)
    one.save(b"new", version=5)
    return files.calls[before:]


def test_a_save_makes_exactly_these_calls_in_this_order(tmp_path):
    assert calls_of_a_save(tmp_path) == [
        "make_folder",
        "names",
        "create",
        "write",
        "sync",
        "close",
        "rename",
        "sync_folder",
        "remove",
    ]


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", range(9))
def test_a_save_that_fails_at_any_call_leaves_a_usable_snapshot(tmp_path, call, error, for_good):
    files = FaultyFiles(error=error, for_good=for_good)
    one = saved(tmp_path, b"older", b"old", kept=2, files=files)
    files.fails_at = len(files.calls) + call
    try:
        one.save(b"new", version=5)
        acknowledged = True
    except StorageError:
        acknowledged = False
    assert files.failed, "the fault was met"
    found = body_in(tmp_path, 2)
    assert found == b"new" if acknowledged else found in {b"old", b"new"}
    # Only what comes after the new one is safe may fail unnoticed.
    assert acknowledged == (call == 8)

    files.fails_at = None
    one.save(b"newest", version=5)
    assert body_in(tmp_path, 2) == b"newest"
    assert not [name for name in names(tmp_path) if "unfinished" in name]


@pytest.mark.parametrize("call", range(5))
def test_a_load_that_cannot_read_says_so_and_changes_nothing(tmp_path, call):
    saved(tmp_path, b"one", b"two")
    (tmp_path / numbered(2)).write_bytes(b"broken")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    files = FaultyFiles(fails_at=call)
    with pytest.raises(StorageError, match="cannot be read"):
        store(tmp_path, files=files).load()
    assert files.failed
    assert sorted(before.values()) == sorted(path.read_bytes() for path in tmp_path.iterdir())
    assert body_in(tmp_path) == b"one"


def test_short_writes_are_continued(tmp_path):
    class Stingy(FaultyFiles):
        def create(self, path):
            file = super().create(path)
            return type(
                "Short",
                (),
                {
                    "write": lambda _, data: file.write(bytes(data[:7])),
                    "sync": lambda _: file.sync(),
                    "close": lambda _: file.close(),
                },
            )()

    saved(tmp_path, b"a body that takes several writes", files=Stingy())
    assert body_in(tmp_path) == b"a body that takes several writes"
