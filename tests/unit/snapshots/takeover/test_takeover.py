"""What an owner does with a folder that others have used: what it claims, removes, sets aside and reads."""

from pathlib import Path

import pytest

from snapshots.errors import (
    ClaimRemoved,
    Damaged,
    Fenced,
    Hole,
    NewerFormat,
    NothingUsable,
    StorageError,
    SyncFailed,
)
from snapshots.files import RealFiles
from snapshots.folders import create_folder, destroy_folder
from snapshots.format.file_names import (
    CLAIM_NUMBER,
    page_name,
    segment_name,
    snapshot_name,
    unfinished_name,
)
from snapshots.format.framing import frame
from snapshots.format.snapshot_file import SNAPSHOT_FILE, Snapshot, encode
from snapshots.inspection import read_only
from snapshots.store import Store
from snapshots.write.snapshot_writer import SnapshotWriter
from tests.crash.model.history import FOLDER
from tests.crash.model.memory_disk import MemoryDisk
from tests.faulty_files import FaultyFiles
from tests.unit.snapshots.owners import after_a_crash, flipped, forget_marks, opened, recovered, save, write


def test_a_snapshot_is_given_up_if_the_claim_is_removed_meanwhile(folder):
    store = write(opened(folder, 1), b"one")
    sequence = store.begin_snapshot()
    (folder / segment_name(1, CLAIM_NUMBER)).unlink()
    with pytest.raises(ClaimRemoved):
        store.save([b"never named"], version=7, sequence=sequence)
    assert not list(folder.glob("*.unfinished"))
    assert recovered(folder) == (b"born", [b"one"])


def test_the_owner_of_a_folder_that_was_made_anew_removes_nobody_elses_claim(folder):
    first = write(opened(folder, 1), b"one")
    destroy_folder(folder)
    create_folder(folder, b"born again", version=7)
    second = opened(folder, 1)
    first.release()
    second.check_owner()


def test_an_epoch_that_was_released_is_not_owned_again(folder):
    store = save(write(opened(folder, 1, snapshots_kept=1), b"one"))
    write(store, b"two").release()
    with pytest.raises(Fenced):
        Store(folder, epoch=1).recover()
    assert recovered(folder) == (b"saved", [b"two"])


def test_an_owner_is_later_than_the_writer_of_the_snapshot(folder):
    (folder / snapshot_name(2)).write_bytes(encode(Snapshot(5, 2, 7, b"later")))
    with pytest.raises(Fenced, match="by epoch 5, later than 4"):
        Store(folder, epoch=4).recover()


def test_a_folder_with_a_newer_format_is_left_alone_though_something_in_it_is_damaged(folder):
    save(write(opened(folder, 1), b"one"))
    newest = folder / snapshot_name(1)
    newest.write_bytes(flipped(newest.read_bytes(), 49))
    (folder / snapshot_name(0)).write_bytes(frame(SNAPSHOT_FILE.magic, 2, b"what nobody knows yet"))
    with pytest.raises(NewerFormat):
        Store(folder, epoch=2).recover()
    assert not list(folder.glob("*.damaged"))


def test_the_copy_of_what_is_damaged_survives_a_crash(disk):
    save(write(opened(FOLDER, 1, disk), b"one"))
    image = disk.image()
    name = snapshot_name(1)
    data = flipped(image[name], 49)
    damaged = MemoryDisk({**image, name: data})
    assert recovered(FOLDER, damaged) == (b"born", [b"one"])
    assert [found.get(f"{name}.damaged") for found in after_a_crash(damaged)] == [data]


def test_an_unfinished_file_of_an_earlier_owner_does_not_come_back_after_a_crash(disk):
    write(opened(FOLDER, 1, disk), b"one").release()
    unfinished = unfinished_name(snapshot_name(1), 1)
    disk = MemoryDisk({**disk.image(), unfinished: b"begun"})
    opened(FOLDER, 2, disk)
    assert not any(unfinished in found for found in after_a_crash(disk))


def test_an_unfinished_file_of_a_later_owner_stays(folder):
    """A listing that is made while that owner comes may lack its claim and have a file that it made later."""
    unfinished = folder / unfinished_name(snapshot_name(1), 3)
    unfinished.touch()
    opened(folder, 2)
    assert unfinished.exists()


def test_a_snapshot_that_comes_while_another_owner_claims_the_folder_survives_a_crash(disk):
    write(opened(FOLDER, 1, disk), b"one")
    name, unfinished = snapshot_name(1), unfinished_name(snapshot_name(1), 1)
    disk = MemoryDisk({**disk.image(), unfinished: encode(Snapshot(1, 1, 7, b"late"))})

    def rename(call: str) -> None:
        # The first owner has looked for later ones just before.
        if call == "sync_folder":
            disk.after = lambda _: None
            disk.rename(FOLDER / unfinished, FOLDER / name)

    disk.after = rename
    assert recovered(FOLDER, disk) == (b"late", [])
    assert all(name in found for found in after_a_crash(disk))


def test_what_a_failed_sync_left_in_memory_alone_is_on_the_disk_once_the_next_owner_has_read_it(disk):
    files = FaultyFiles(files=disk)
    store = opened(FOLDER, 1, files)
    store.append(b"one", version=3)
    files.fail_next("sync_data")
    with pytest.raises(SyncFailed):
        store.sync()
    opened(FOLDER, 2, disk)
    for image in after_a_crash(disk):
        assert recovered(FOLDER, MemoryDisk(image)) == (b"born", [b"one"])


def test_no_segment_that_a_fenced_owner_began_later_is_read(folder):
    first = write(opened(folder, 1, segment_bytes_max=100), b"one")
    second = opened(folder, 2)
    for late in (b"a record of the same segment", b"of the next one", b"of that one, too"):
        first.append(late, version=3)
    write(second, b"two")
    assert segment_name(1, 2) in {path.name for path in folder.iterdir()}
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_a_long_segment_is_read_up_to_its_fence(folder):
    first = write(opened(folder, 1), b"one" * 9_000)
    second = opened(folder, 2)
    first.append(b"late", version=3)
    write(second, b"two")
    assert recovered(folder) == (b"born", [b"one" * 9_000, b"two"])


def test_what_is_missing_before_a_fence_is_told_by_the_later_owner_and_not_by_what_is_void(folder):
    first = write(opened(folder, 1, segment_bytes_max=50), b"one")
    second = opened(folder, 2)
    first.append(b"late, in a segment that begins at the fence", version=3)
    write(second, b"two")
    path = folder / segment_name(1, 1)
    path.write_bytes(path.read_bytes()[:44])
    with pytest.raises(Hole, match="ends with record 0 at offset 44, and a later owner found"):
        Store(folder).recover()


def test_a_damaged_segment_that_the_snapshot_replaces_is_not_read(folder):
    write(save(write(opened(folder, 1), b"one")), b"two")
    path = folder / segment_name(1, 1)
    path.write_bytes(flipped(path.read_bytes(), 85))
    assert recovered(folder) == (b"saved", [b"two"])


@pytest.mark.parametrize("payload_bytes", [3, 9_000])
def test_a_segment_is_read_from_the_snapshot_on(folder, payload_bytes):
    one, two, three, four = (b"%d" % number * payload_bytes for number in range(1, 5))
    store = write(opened(folder, 1), one, two)
    sequence = store.begin_snapshot(goes_on=False)
    write(store, three, four)
    store.save([b"saved"], version=7, sequence=sequence)
    assert recovered(folder) == (b"saved", [three, four])
    assert opened(folder, 9).journal_bytes == 2 * (40 + payload_bytes)


def test_records_of_an_owner_before_the_snapshots_do_not_fill_a_hole_after_it(folder):
    first = write(opened(folder, 1), b"one")
    second = save(opened(folder, 2))
    first.append(b"late", version=3)
    write(save(write(second, b"two")), b"three")
    newest = folder / snapshot_name(2)
    newest.write_bytes(flipped(newest.read_bytes(), 49))
    (folder / segment_name(2, 1)).unlink()
    forget_marks(folder)
    with pytest.raises(Hole, match="begins with record 3, and those from 2 on are missing"):
        Store(folder).recover()


def test_the_records_of_a_long_segment_are_read_again_each_time_and_checked(folder):
    payloads = [bytes([65 + number]) * 9_000 for number in range(3)]
    write(opened(folder, 1), *payloads)
    found = Store(folder).recover()
    for _ in range(2):
        assert [record.payload for record in found.records] == payloads
    path = folder / segment_name(1, 1)
    path.write_bytes(flipped(path.read_bytes(), 20_000))
    with pytest.raises(Damaged, match=r"has changed: at offset .* record 3"):
        list(found.records)


class Vanishing(RealFiles):
    """Real files; of so many listings, each has a snapshot that is gone before it is read."""

    def __init__(self, times: int) -> None:
        self.listings = 0
        self._times = times

    def names(self, folder: Path) -> list[str]:
        self.listings += 1
        return super().names(folder) + [snapshot_name(9)] * (self.listings <= self._times)


def test_a_folder_is_listed_up_to_five_times_while_files_go(folder):
    write(opened(folder, 1), b"one")
    files = Vanishing(4)
    assert [record.payload for record in read_only(folder, files).records] == [b"one"]
    assert files.listings == 5
    with pytest.raises(StorageError, match="cannot be read"):
        read_only(folder, Vanishing(5))


def test_segments_that_the_oldest_kept_snapshot_needs_stay_with_it(folder):
    write(save(write(opened(folder, 11), b"one"), b"after one"), b"two").release()
    save(opened(folder, 12)).release()
    save(write(opened(folder, 13, snapshots_kept=3), b"three"))
    for sequence in (2, 3):
        path = folder / snapshot_name(sequence)
        path.write_bytes(flipped(path.read_bytes(), 49))
    assert recovered(folder) == (b"after one", [b"two", b"three"])


def test_void_segments_are_removed_with_the_next_snapshot(folder):
    first, second = opened(folder, 1), opened(folder, 2)
    first.append(b"one", version=3)
    third = opened(folder, 3)
    second.append(b"void", version=3)
    write(third, b"two").close()
    save(opened(folder, 4))
    assert not (folder / segment_name(2, 1)).exists()


def test_a_refusal_says_what_is_wrong_with_each_snapshot_or_that_all_were_set_aside(folder):
    path = folder / snapshot_name(0)
    path.write_bytes(flipped(path.read_bytes(), 0))
    with pytest.raises(NothingUsable, match=rf"can be used: {path}: it does not begin as"):
        Store(folder).recover()
    path.unlink()
    with pytest.raises(NothingUsable, match="can be used: all were set aside before"):
        Store(folder).recover()


def test_a_snapshot_with_the_name_of_another_is_damage(folder):
    write(opened(folder, 1), b"one", b"two")
    (folder / snapshot_name(2)).write_bytes(encode(Snapshot(1, 1, 7, b"other")))
    found = Store(folder).recover()
    assert [damage.reason for damage in found.damage] == [f"{snapshot_name(2)}: its header names number 1"]
    assert [record.payload for record in found.records] == [b"one", b"two"]


def save_page(folder: Path, epoch: int, sequence: int, *, expires_us: int = 2**62) -> Path:
    writer = SnapshotWriter(folder, epoch, RealFiles())
    writer.save_page(b"%d" % sequence, version=2, sequence=sequence, expires_us=expires_us)
    return folder / page_name(sequence)


def test_pages_up_to_the_snapshot_are_read_until_they_expire(folder):
    save(write(opened(folder, 1), b"one", b"two", b"three", b"four"))
    for sequence, expires_us in ((1, 999), (2, 1_000), (4, 1_001), (5, 1_001)):
        save_page(folder, 1, sequence, expires_us=expires_us)
    found = Store(folder, now_us=lambda: 1_000).recover()
    assert [page.body for page in found.pages] == [b"2", b"4"]
    assert found.damage == ()


def test_a_page_whose_snapshot_was_never_saved_is_of_no_use_to_a_later_one(folder):
    write(opened(folder, 1), b"one")
    save_page(folder, 1, 1)
    save(write(opened(folder, 2), b"two"))
    assert list(Store(folder).recover().pages) == []


def test_pages_that_do_not_fit_are_set_aside_with_the_reason(folder):
    first = write(opened(folder, 1), b"one")
    second = opened(folder, 2)
    first.append(b"late", version=3)
    save(write(second, b"two"))
    save_page(folder, 1, 2)
    save_page(folder, 1, 1).rename(folder / page_name(0))
    damaged = save_page(folder, 1, 1)
    damaged.write_bytes(flipped(damaged.read_bytes(), 56))
    found = Store(folder).recover()
    assert list(found.pages) == []
    assert [(damage.path.name, damage.reason) for damage in found.damage] == [
        (f"{page_name(0)}.damaged", f"{page_name(0)}: its header names number 1"),
        (f"{page_name(1)}.damaged", f"{page_name(1)}: its body does not fit its checksum"),
        (f"{page_name(2)}.fenced", f"{page_name(2)}: it is by epoch 1, which was fenced off before record 2"),
    ]


def test_each_different_copy_of_what_is_damaged_is_kept_and_no_file_stays_open(folder):
    save(write(opened(folder, 1), b"one")).close()
    path = folder / snapshot_name(1)
    sound = path.read_bytes()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for at in (49, 50, 49):
        path.write_bytes(flipped(sound, at))
        store = Store(folder)
        store.recover()
        store.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    copies = [folder / f"{path.name}.{suffix}" for suffix in ("damaged", "damaged-2", "damaged-3")]
    assert [copy.exists() for copy in copies] == [True, True, False]
    assert [copy.read_bytes() for copy in copies[:2]] == [flipped(sound, 49), flipped(sound, 50)]
