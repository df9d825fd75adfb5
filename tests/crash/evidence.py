"""What a folder tells of the moment at which its owner was killed, before anyone else has touched it."""

from dataclasses import dataclass
from pathlib import Path

from snapshots.format.file_names import listing
from snapshots.format.segments import HEADER_BYTES, decode_record_header, payload_of

SNAPSHOT = "while a snapshot was written"
ROTATION = "between a closed segment and its snapshot"
WAKE = "during a wake"
TRIM = "before what a snapshot made needless was removed"
TORN = "in the middle of a record"
BATCH = "otherwise while a batch was in flight"
IDLE = "otherwise"
ON_THE_DISK = (SNAPSHOT, ROTATION, WAKE, TRIM, TORN)
"""Those that files bear witness to."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A segment's last whole record, 0 where there is none, and whether it has more than whole records."""

    last: int
    torn: bool


def contents(path: Path) -> Contents:
    """Read a segment as far as its records are whole."""
    data = path.read_bytes()
    last, offset = 0, HEADER_BYTES
    while (header := decode_record_header(data, offset)) is not None:
        if payload_of(data, offset, header) is None:
            break
        last, offset = header.sequence, offset + header.bytes_
    return Contents(last, torn=bool(data) and offset != len(data))


def of_the_kill(folder: Path, epoch: int, *, waking: bool, in_flight: bool, kept: int) -> str:
    """Say in what the owner with this epoch was killed. `waking`: nobody had been told that it was awake."""
    found = listing(path.name for path in folder.iterdir())
    if found.unfinished:
        return SNAPSHOT
    own = [folder / name for (of, _), name in found.segments.items() if of == epoch]
    if waking and epoch in found.claims:
        # Claimed, and nothing written yet by the one who did.
        marked = (folder / "replaying").exists()
        if marked or not any(contents(path).last for path in own):
            return WAKE
    newest = max(found.snapshots)
    if len(own) > 1 and contents(own[-2]).last > newest:
        return ROTATION
    if len(found.snapshots) > kept:
        return TRIM
    if own and contents(own[-1]).torn:
        return TORN
    return BATCH if in_flight else IDLE
