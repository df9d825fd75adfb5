"""Page files: what was encoded is decoded, and anything else is refused."""

from pathlib import Path

import pytest

from snapshots.errors import Damaged
from snapshots.format.file_names import listing
from snapshots.format.pages import HEADER_BYTES, Page, decode, decode_header
from snapshots.write.snapshot_writer import SnapshotWriter
from tests.faulty_files import FaultyFiles

BODY = b"what is kept"


def encoded(folder: Path) -> bytes:
    SnapshotWriter(folder, 3, FaultyFiles()).save_page(BODY, version=1, sequence=7, expires_us=-5)
    return (folder / "page-00000000000000000007.rdp").read_bytes()


def test_a_file_is_as_the_readme_says(tmp_path: Path) -> None:
    data = encoded(tmp_path)
    assert data[:12] == b"\x89RDP\r\n\x1a\n\x01\x00\x38\x00"
    fields = [(12, 4), (16, 8), (24, 8), (32, 8), (40, 8)]
    told = [int.from_bytes(data[at : at + size], "little", signed=True) for at, size in fields]
    assert told == [1, 3, 7, -5, len(BODY)]
    assert data[HEADER_BYTES:] == BODY
    assert decode(data) == Page(1, BODY)
    assert decode_header(data).expires_us == -5


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path: Path) -> None:
    data = encoded(tmp_path)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            decode(bytes(flipped))
    for length in range(len(data)):
        with pytest.raises(Damaged):
            decode(data[:length])


def test_names_of_pages_are_told_from_others() -> None:
    names = ["page-00000000000000000012.rdp", "page-00000000000000000007.rdp", "page-7.rdp", "page"]
    assert [*listing(names).pages.items()] == [(7, names[1]), (12, names[0])]
    aside = "page-00000000000000000012.rdp.damaged"
    assert listing([aside]).set_aside == {aside}
