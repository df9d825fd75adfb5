"""Snapshot bytes: what is decoded, and what counts as damage."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots.errors import Damaged, NewerFormat
from snapshots.format.framing import frame
from snapshots.format.snapshot_file import HEADER_BYTES, SNAPSHOT_FILE, Snapshot, decode, encode, epoch_of

FORMAT, MAGIC = SNAPSHOT_FILE.format, SNAPSHOT_FILE.magic

SMALL = Snapshot(epoch=3, sequence=7, version=2, body=b"some state, 0123")

snapshots = st.builds(
    Snapshot,
    epoch=st.integers(0, 2**64 - 1),
    sequence=st.integers(0, 2**64 - 1),
    version=st.integers(0, 2**32 - 1),
    body=st.binary(max_size=200),
)


@given(snapshots)
def test_what_was_encoded_is_decoded(snapshot):
    assert decode(encode(snapshot)) == snapshot


def test_the_layout_is_the_documented_one():
    data = encode(SMALL)
    assert data[:8] == MAGIC == b"\x89RDS\r\n\x1a\n"
    assert struct.unpack_from("<HHIQQQII", data, 8) == (
        FORMAT,
        HEADER_BYTES,
        SMALL.version,
        SMALL.epoch,
        SMALL.sequence,
        len(SMALL.body),
        zlib.crc32(SMALL.body),
        zlib.crc32(data[:44]),
    )
    assert HEADER_BYTES == 48
    assert data[48:] == SMALL.body


def test_every_truncation_is_damage():
    data = encode(SMALL)
    for length in range(len(data)):
        said = f"within its header, after {length} bytes" if length < 12 else "cannot have 48 bytes"
        with pytest.raises(Damaged, match=said if length < 48 else "its body has"):
            decode(data[:length])


@pytest.mark.parametrize("format_", [FORMAT, FORMAT + 1])
def test_a_whole_file_of_another_type_is_damage(format_):
    with pytest.raises(Damaged, match="does not begin as such a file does"):
        decode(frame(b"\x89RDX\r\n\x1a\n", format_, encode(SMALL)[12:44]))


@pytest.mark.parametrize("header_bytes", [0, 15, 49])
def test_a_header_that_is_too_short_or_longer_than_the_file_is_damage(header_bytes):
    data = struct.pack("<8sHH36x", MAGIC, FORMAT, header_bytes)
    with pytest.raises(Damaged, match=f"its header cannot have {header_bytes} bytes"):
        decode(data)


def test_a_whole_header_that_is_longer_than_that_of_its_format_is_damage():
    with pytest.raises(Damaged, match="another length than its format has"):
        decode(of_format(FORMAT, extra=b"more"))


def test_every_flipped_bit_is_damage():
    data = encode(SMALL)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            decode(bytes(flipped))


@pytest.mark.parametrize("tail", [b"\0", b"x" * 100, encode(SMALL)])
def test_bytes_after_the_end_are_damage(tail):
    with pytest.raises(Damaged):
        decode(encode(SMALL) + tail)


def test_a_body_of_another_snapshot_is_damage():
    other = encode(Snapshot(epoch=3, sequence=7, version=2, body=b"some state, 4567"))
    with pytest.raises(Damaged, match="body"):
        decode(encode(SMALL)[:HEADER_BYTES] + other[HEADER_BYTES:])


def of_format(number: int, *, extra: bytes = b"") -> bytes:
    """A whole file of some other format: its header is longer by `extra`."""
    return frame(MAGIC, number, encode(SMALL)[12:44] + extra) + SMALL.body


@pytest.mark.parametrize("extra", [b"", b"fields that are not known here"])
def test_a_whole_file_of_a_newer_format_is_refused_by_its_number(extra):
    with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}.*up to {FORMAT}"):
        decode(of_format(FORMAT + 1, extra=extra))


def test_a_newer_format_may_have_no_fields():
    with pytest.raises(NewerFormat):
        decode(frame(MAGIC, FORMAT + 1, b""))


def test_only_the_header_of_the_current_format_tells_the_epoch():
    assert epoch_of(encode(SMALL)[:HEADER_BYTES]) == SMALL.epoch
    assert epoch_of(encode(SMALL)[: HEADER_BYTES - 1]) is None
    assert epoch_of(of_format(FORMAT + 1)) is None


def test_a_damaged_file_of_a_newer_format_is_damaged():
    data = bytearray(of_format(FORMAT + 1))
    data[20] ^= 1
    with pytest.raises(Damaged):
        decode(bytes(data))


def test_an_older_format_that_never_was_is_damage():
    with pytest.raises(Damaged, match="never was"):
        decode(of_format(0))
