"""Creates the folder of a store with its first snapshot, and destroys it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from snapshots.errors import NothingUsable
from snapshots.files import Files, RealFiles, storage_errors
from snapshots.format.file_names import listing
from snapshots.write.snapshot_writer import SnapshotWriter


def create_folder(
    folder: Path, body: bytes | Iterator[bytes], *, version: int, files: Files | None = None
) -> None:
    """Make a folder with a first snapshot, of record 0 and epoch 0, durably. May be repeated.

    A body may come in pieces. Raises StorageError; NothingUsable for a folder that was used and has lost its
    snapshots.
    """
    files = files or RealFiles()
    with storage_errors(f"{folder} cannot be made"):
        files.make_folder(folder)
        names = listing(files.names(folder))
        if not names.snapshots:
            if names.segments or names.damaged_snapshots:
                raise NothingUsable(f"{folder} is not new, and holds no snapshot that can be used")
            pieces = [body] if isinstance(body, bytes) else body
            SnapshotWriter(folder, 0, files).save_snapshot(pieces, version=version, sequence=0)
        # An earlier attempt may have died before its syncs.
        files.sync_folder(folder)
        files.sync_folder(folder.parent)


def has_snapshot(folder: Path, files: Files | None = None) -> bool:
    """Whether a folder exists and has a snapshot. Raises StorageError."""
    with storage_errors(f"{folder} cannot be read"):
        return bool(listing((files or RealFiles()).names(folder)).snapshots)


def is_unused(folder: Path, files: Files | None = None) -> bool:
    """Whether a folder holds at most what `create_folder` makes. Raises StorageError."""
    files = files or RealFiles()
    with storage_errors(f"{folder} cannot be read"):
        names = listing(files.names(folder))
        written = any(files.read_start(folder / name, 1) for name in names.segments.values())
    return not (written or names.snapshots.keys() - {0} or names.set_aside)


def destroy_folder(folder: Path, files: Files | None = None) -> None:
    """Remove a folder with everything in it. May be repeated if it fails half-way. Raises StorageError.

    Removes the snapshots before the journal, because a folder without a snapshot is refused.
    """
    files = files or RealFiles()
    with storage_errors(f"{folder} cannot be removed"):
        for name in sorted(files.names(folder), key=lambda name: name.startswith("journal")):
            with contextlib.suppress(FileNotFoundError):
                files.remove(folder / name)
        with contextlib.suppress(FileNotFoundError):
            files.remove_folder(folder)
        with contextlib.suppress(FileNotFoundError):
            files.sync_folder(folder.parent)
