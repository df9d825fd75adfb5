"""The moment at which an owner was killed, judged by the files that it left."""

from dataclasses import dataclass
from pathlib import Path

from snapshots.format.file_names import listing
from snapshots.format.segments import HEADER_BYTES, decode_record_header, payload_of

SNAPSHOT = "while a snapshot was written"
ROTATION = "between a closed segment and its snapshot"
ACTIVATION = "during an activation"
TRIM = "before obsolete files were removed"
TORN = "in the middle of a record"
BATCH = "otherwise while a batch was in flight"
IDLE = "otherwise"
SHOWN_BY_FILES = (SNAPSHOT, ROTATION, ACTIVATION)
"""The moments that a run of kills must have hit."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A segment's last whole record, 0 for none, and whether it has anything but whole records."""

    last: int
    torn: bool


def contents(path: Path) -> Contents:
    """Read the whole records of a segment."""
    data = path.read_bytes()
    last, offset = 0, HEADER_BYTES
    while (header := decode_record_header(data, offset)) is not None:
        if payload_of(data, offset, header) is None:
            break
        last, offset = header.sequence, offset + header.bytes_
    return Contents(last, torn=bool(data) and offset != len(data))


def of_the_kill(folder: Path, epoch: int, *, activating: bool, in_flight: bool, snapshots_kept: int) -> str:
    """Return the moment at which this epoch's owner was killed. `activating`: before its activation ended."""
    found = listing(path.name for path in folder.iterdir())
    if found.unfinished:
        return SNAPSHOT
    own = [folder / name for (of, _), name in found.segments.items() if of == epoch]
    if activating and epoch in found.claims:
        # It has claimed the folder and written nothing yet.
        marked = (folder / "replaying").exists()
        if marked or not any(contents(path).last for path in own):
            return ACTIVATION
    newest = max(found.snapshots)
    if len(own) > 1 and contents(own[-2]).last > newest:
        return ROTATION
    if len(found.snapshots) > snapshots_kept:
        return TRIM
    if own and contents(own[-1]).torn:
        return TORN
    return BATCH if in_flight else IDLE
