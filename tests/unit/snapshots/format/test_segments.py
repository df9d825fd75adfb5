"""Journal bytes: what is decoded, what counts as torn, and what as damage."""

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots.format.segment_reader import (
    Record,
    SegmentReader,
    classify,
    header_is_torn,
    last_known_synced,
)
from snapshots.format.segments import (
    END_MARK,
    HEADER_BYTES,
    MARK,
    RECORD_HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    SEGMENT_FILE,
    SegmentHeader,
    decode_header,
    decode_record_header,
    encode_header,
    encode_record,
    zero_sectors,
)
from snapshots.format.snapshot_file import Snapshot, decode, encode

FORMAT, MAGIC = SEGMENT_FILE.format, SEGMENT_FILE.magic
GOLDEN = Path(__file__).parent / "golden"
HEADER = SegmentHeader(epoch=3, number=2, first=7, after=1)
PAYLOADS = (b"some record", b"", bytes(range(256)) * 3)


def segment(*payloads: bytes, synced: int = 6) -> bytes:
    data = encode_header(HEADER)
    for sequence, payload in enumerate(payloads, start=HEADER.first):
        data += encode_record(sequence, 9, payload, synced=synced, offset=len(data))
    return data


def read(data: bytes) -> tuple[list[Record], SegmentReader]:
    reader = SegmentReader(data, Path("one"), HEADER.first)
    return list(reader), reader


@given(st.lists(st.binary(max_size=1_100), max_size=5))
def test_what_was_encoded_is_decoded(payloads):
    data = segment(*payloads)
    assert decode_header(data) == HEADER
    records, reader = read(data)
    assert [one.payload for one in records] == payloads
    assert (reader.stop.offset, reader.stop.reason) == (len(data), None)


def test_the_layout_is_the_documented_one():
    data = segment(b"some record")
    assert data[:8] == MAGIC == b"\x89RDJ\r\n\x1a\n"
    assert struct.unpack_from("<HHQIQQI", data, 8) == (FORMAT, 44, 3, 2, 7, 1, zlib.crc32(data[:40]))
    assert data[44:48] == MARK == b"\xb5rec"
    assert struct.unpack_from("<IQQHHII", data, 48) == (
        11,
        7,
        6,
        9,
        0,
        zlib.crc32(b"some record"),
        zlib.crc32(data[44:76]),
    )
    assert data[80:] == b"some record" + END_MARK == b"some record\xb6end"
    assert (HEADER_BYTES, RECORD_OVERHEAD_BYTES) == (44, 40)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("journal-format-1.rdj", segment(*PAYLOADS)),
        ("snapshot-format-1.rds", encode(Snapshot(epoch=3, sequence=7, version=2, body=b"some state, 0123"))),
    ],
)
def test_what_is_written_is_what_was_written_when_the_format_was_new(name, data):
    assert (GOLDEN / name).read_bytes() == data


def test_old_files_are_read():
    records, reader = read((GOLDEN / "journal-format-1.rdj").read_bytes())
    assert tuple(one.payload for one in records) == PAYLOADS
    assert reader.stop.reason is None
    assert decode((GOLDEN / "snapshot-format-1.rds").read_bytes()).body == b"some state, 0123"


@pytest.mark.parametrize(
    "payload", [b"", b"x" * 1_500, bytes(1_500), b"\1" + bytes(1_499), bytes(1_499) + b"\1"]
)
def test_no_flipped_bit_makes_a_record_look_torn_whatever_it_holds(payload):
    data = segment(payload)
    for bit in range(HEADER_BYTES * 8, len(data) * 8, 1 if len(set(payload)) > 1 else 7):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        records, reader = read(bytes(flipped))
        assert records == []
        assert reader.stop.reason is not None
        assert not reader.stop.torn, bit


@pytest.mark.parametrize("padding", range(360, 440))
def test_no_flipped_bit_makes_a_record_of_zeros_look_torn_wherever_it_ends(padding):
    data = segment(b"x" * padding, bytes(16))
    for bit in range((len(data) - 56) * 8, len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not read(bytes(flipped))[1].stop.torn, bit


def test_a_header_is_torn_where_the_file_ends_within_it_or_its_sector_was_lost():
    data = segment(b"x" * 1_000)
    assert header_is_torn(data[: HEADER_BYTES - 1])
    assert header_is_torn(bytes(512) + data[512:])
    for bit in range(HEADER_BYTES * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not header_is_torn(bytes(flipped)), bit
        assert not header_is_torn(bytes(flipped[:HEADER_BYTES])), bit


def blank_sectors(payload: bytes, offset: int = HEADER_BYTES) -> int:
    header = decode_record_header(encode_record(1, 9, payload, synced=0, offset=offset), 0)
    assert header is not None
    return header.blank_sectors


def test_the_header_of_a_record_counts_the_whole_sectors_that_hold_fewer_than_two_bits():
    before = b"x" * (512 - HEADER_BYTES - RECORD_HEADER_BYTES)
    for at in range(512):
        assert blank_sectors(before + bytes(at) + b"\x80" + bytes(511 - at) + b"x" * 512) == 1, at
        assert blank_sectors(before + bytes(at) + b"\x81" + bytes(511 - at) + b"x" * 512) == 0, at
    assert blank_sectors(before + bytes(512)) == 1
    assert blank_sectors(before + bytes(511)) == 0
    assert blank_sectors(bytes(len(before)) + b"x" * 512 + bytes(300)) == 0
    assert blank_sectors(before + bytes(512) + b"x" * 512 + bytes(1_000)) == 2


def test_a_record_of_very_many_sectors_of_zeros_counts_as_many_as_its_header_can_hold():
    assert blank_sectors(bytes(65_536 * 512 + 511)) == 65_535


def test_every_lost_sector_makes_a_record_look_torn():
    data = segment(b"x" * 3_000)
    for begin in range(0, len(data), 512):
        lost = data[: max(begin, HEADER_BYTES)] + bytes(min(512, len(data) - begin)) + data[begin + 512 :]
        assert read(lost[: len(data)])[1].stop.torn


def test_every_prefix_is_the_whole_records_and_a_torn_one():
    data = segment(*PAYLOADS)
    ends = [HEADER_BYTES]
    for payload in PAYLOADS:
        ends.append(ends[-1] + RECORD_OVERHEAD_BYTES + len(payload))
    for length in range(HEADER_BYTES, len(data)):
        records, reader = read(data[:length])
        assert len(records) == sum(end <= length for end in ends[1:])
        assert reader.stop.torn == (length not in ends)


def test_a_later_record_is_a_witness_only_of_what_it_knew():
    begin = HEADER_BYTES + RECORD_OVERHEAD_BYTES + len(b"first")
    for synced, torn in ((6, True), (7, True), (8, False)):
        data = segment(b"first", b"x" * 1_000)
        data += encode_record(9, 9, b"third", synced=synced, offset=len(data))
        lost = data[:512] + bytes(512) + data[1024:]
        stop = classify(lost, begin, 8)
        assert (stop.torn, stop.sequence) == (torn, 8)
        assert ("record 9 at offset" in str(stop.reason)) != torn


def test_a_header_that_ends_the_file_is_a_witness_and_a_mere_mark_is_none():
    data = segment(b"x" * 1_000 + MARK)
    lost = data[:512] + bytes(512) + data[1024:]
    assert classify(lost, HEADER_BYTES, 7).torn
    lost += encode_record(8, 9, b"", synced=7, offset=len(data))[: -len(END_MARK)]
    assert not classify(lost, HEADER_BYTES, 7).torn


def test_damage_is_reported_without_a_witness():
    data = segment(b"seven") + encode_record(8, 9, b"eight", synced=7, offset=0)
    _, reader = read(data.replace(b"seven", b"Seven"))
    assert reader.stop.reason == "at offset 44, record 7 does not fit its checksum"


def test_without_a_header_the_records_still_say_what_was_on_the_disk():
    data = segment(b"seven", b"eight", synced=6)
    data += encode_record(9, 9, b"nine", synced=8, offset=len(data))
    assert last_known_synced(bytes(HEADER_BYTES) + data[HEADER_BYTES:]) == 8
    assert last_known_synced(encode_header(HEADER)) == 0


def test_a_record_that_is_not_the_next_is_damage():
    data = segment(b"seven")
    data += encode_record(9, 9, b"nine", synced=6, offset=len(data))
    _, reader = read(data)
    assert "record 8 is expected, and record 9 is there" in str(reader.stop.reason)
    assert not reader.stop.torn


def test_records_inside_a_payload_are_not_records():
    inner = encode_record(8, 9, b"inner", synced=6, offset=0)
    records, _ = read(segment(inner, b"eight"))
    assert [one.payload for one in records] == [inner, b"eight"]


def test_it_is_known_from_where_on_records_may_not_be_on_the_disk():
    data = segment(b"7", b"8")
    first_unknown = len(data)
    for sequence in (9, 10):
        data += encode_record(sequence, 9, b"more", synced=8, offset=len(data))
    records, reader = read(data)
    assert (len(records), reader.synced, reader.unsynced_offset) == (4, 8, first_unknown)


def test_what_comes_before_a_segment_was_on_the_disk_when_it_began():
    _, reader = read(segment())
    assert (reader.synced, reader.unsynced_offset) == (6, None)


def test_only_what_was_written_after_it_counts_of_the_first_sector():
    assert zero_sectors(b"x" * 100 + bytes(412) + b"y" * 512, 100, 1024) == 1
    assert zero_sectors(b"x" * 100 + bytes(411) + b"z" + b"y" * 512, 100, 1024) == 0
    assert zero_sectors(bytes(700), 600, 700) == 1
    assert decode_record_header(bytes(100), 0) is None
