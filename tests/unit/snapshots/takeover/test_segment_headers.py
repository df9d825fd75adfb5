"""Bad headers of segments: which are damage, which a torn write, and which are passed over."""

from pathlib import Path

import pytest

from snapshots.errors import (
    Damaged,
    NewerFormat,
)
from snapshots.format.file_names import segment_name
from snapshots.format.framing import frame
from snapshots.format.segments import SEGMENT_FILE
from snapshots.store import Store
from snapshots.takeover.recovered import Recovered
from tests.unit.snapshots.owners import flipped, forget_marks, opened, save, write


def spoil(folder: Path, epoch: int, number: int, *, torn: bool = False) -> str:
    """Flip a bit of a segment's header, or lose the sector that it is in; return the segment's name."""
    path = folder / segment_name(epoch, number)
    data = path.read_bytes()
    path.write_bytes(bytes(512) + data[512:] if torn else flipped(data, 20))
    return path.name


def damaged_files(found: Recovered) -> list[str]:
    return [one.path.name for one in found.damage]


def test_a_bad_header_of_the_last_owner_is_damage(folder):
    write(opened(folder, 1), b"one")
    write(opened(folder, 2), b"two")
    name = spoil(folder, 2, 1)
    with pytest.raises(Damaged, match=f"{name}: at offset 0, its header does not fit its checksum"):
        Store(folder).recover()


def test_a_bad_header_of_an_owner_whose_records_another_one_continues_is_damage(folder):
    write(opened(folder, 1), b"one")
    write(opened(folder, 2), b"two")
    name = spoil(folder, 1, 1)
    with pytest.raises(Damaged, match=name):
        Store(folder).recover()


def test_a_bad_header_of_an_owner_that_was_fenced_off_is_reported_and_passed_over(folder):
    first = write(opened(folder, 1), b"one")
    second, third = opened(folder, 2), opened(folder, 3)
    write(third, b"two")
    for payload in (b"late", b"later", b"x" * 600, b"latest"):
        second.append(payload, version=3)
        second.sync()
    first.close()
    name = spoil(folder, 2, 1)
    found = Store(folder).recover()
    assert (damaged_files(found), [one.payload for one in found.records]) == (
        [f"{name}.damaged"],
        [b"one", b"two"],
    )
    spoil(folder, 2, 1, torn=True)
    found = Store(folder).recover()
    assert (damaged_files(found), [one.payload for one in found.records]) == (
        [f"{name}.torn"],
        [b"one", b"two"],
    )


def test_bad_headers_of_segments_that_the_snapshot_replaces_are_reported_and_passed_over(folder):
    store = save(write(opened(folder, 1, segment_bytes_max=50), b"one", b"two"))
    write(store, b"333", b"444")
    damaged = [f"{spoil(folder, 1, number)}.damaged" for number in (1, 2)]
    found = Store(folder).recover()
    assert (damaged_files(found), [one.payload for one in found.records]) == (damaged, [b"333", b"444"])


def test_a_torn_header_is_damage_if_a_record_after_it_was_on_the_disk(folder):
    write(opened(folder, 2), b"one")
    name = segment_name(3, 1)
    write(write(opened(folder, 3), b"x" * 600), b"three")
    spoil(folder, 3, 1, torn=True)
    with pytest.raises(Damaged, match=f"{name}: at offset 0, .*, and record 2 was on the disk"):
        Store(folder).recover()


def test_a_torn_header_of_a_later_segment_is_damage_if_a_record_after_it_was_on_the_disk(folder):
    store = write(opened(folder, 1, segment_bytes_max=700), b"x" * 700)
    write(write(store, b"y" * 600), b"three")
    spoil(folder, 1, 2, torn=True)
    with pytest.raises(Damaged, match="and record 2 was on the disk"):
        Store(folder).recover()


def test_a_torn_header_before_records_of_the_same_sync_is_a_torn_write(folder):
    write(opened(folder, 1), b"one")
    store = opened(folder, 2)
    for payload in (b"x" * 600, b"three"):
        store.append(payload, version=3)
    name = spoil(folder, 2, 1, torn=True)
    found = Store(folder).recover()
    assert (damaged_files(found), [one.payload for one in found.records]) == ([f"{name}.torn"], [b"one"])


def test_a_segment_with_the_name_of_another_is_damage(folder):
    write(opened(folder, 1), b"one")
    (folder / segment_name(1, 1)).rename(folder / segment_name(1, 2))
    forget_marks(folder)
    with pytest.raises(Damaged, match="its header names number 1 of epoch 1"):
        Store(folder).recover()


def test_a_newer_format_is_known_by_a_header_that_is_longer_than_what_is_read_at_first(folder):
    (folder / segment_name(1, 1)).write_bytes(frame(SEGMENT_FILE.magic, 2, bytes(20_000)))
    with pytest.raises(NewerFormat, match=f"{segment_name(1, 1)} cannot be used: it is of format 2"):
        Store(folder).recover()
