"""What is damaged or missing: what is passed over, what is kept aside, and what is refused."""

import pytest

from snapshots.errors import (
    Damaged,
    Hole,
)
from snapshots.format.file_names import segment_name, snapshot_name
from snapshots.inspection import inspect_folder
from snapshots.store import Store
from tests.unit.snapshots.owners import change, forget_marks, opened, recovered, save, write


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


def test_a_segment_that_was_written_to_and_is_empty_is_reported_as_torn(folder):
    write(opened(folder, 1), b"one")
    write(opened(folder, 2), b"two")
    path = folder / segment_name(2, 1)
    path.write_bytes(b"")
    (reported,) = inspect_folder(folder).damage
    (damage,) = Store(folder).recover().damage
    assert damage.path.name == f"{path.name}.torn"
    assert damage.reason == f"{path.name}: {reported.reason}"
    assert "at offset 0, it is empty" in damage.reason
    assert recovered(folder) == (b"born", [b"one"])
    forget_marks(folder)
    assert inspect_folder(folder).damage == ()


def test_an_empty_segment_whose_records_count_nowhere_is_nothing_to_report(folder):
    store = write(opened(folder, 1), b"one")
    save(store)
    (folder / segment_name(1, 1)).write_bytes(b"")
    assert inspect_folder(folder).damage == ()


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
    with pytest.raises(Damaged, match=r"record 3 at offset .* confirms that it was synced"):
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
    with pytest.raises(Hole, match=f"{segment_name(1, 2)} is gone, with the records from 2 on"):
        Store(folder).recover()
    forget_marks(folder)
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
    with pytest.raises(Hole, match=f"{segment_name(1, 1)} is gone, with the records from 1 on"):
        Store(folder).recover()
    forget_marks(folder)
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
