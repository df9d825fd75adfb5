"""Creates the folders of stores with their first snapshots, and destroys them."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from snapshots.errors import NoRoom, NothingUsable, StorageError
from snapshots.files import Files, OpenFile, RealFiles, storage_errors, write_all
from snapshots.format import snapshot_file
from snapshots.format.file_names import listing, snapshot_name
from snapshots.write.snapshot_writer import SnapshotWriter


def create_folder(
    folder: Path, body: bytes | Iterator[bytes], *, version: int, files: Files | None = None
) -> None:
    """Create a folder with a first snapshot, of record 0 and epoch 0, durably. May be repeated.

    The body may come in pieces. Raises StorageError, and NothingUsable for a used folder that has lost its
    snapshots.
    """
    files = files or RealFiles()
    with storage_errors(f"{folder} cannot be made"):
        files.make_folder(folder)
        names = listing(files.names(folder))
        if not names.snapshots:
            if names.segments or names.marks or names.damaged_snapshots:
                raise NothingUsable(f"{folder} is not new, and holds no snapshot that can be used")
            pieces = [body] if isinstance(body, bytes) else body
            SnapshotWriter(folder, 0, files).save_snapshot(pieces, version=version, sequence=0)
        # An earlier attempt may have died before its syncs.
        files.sync_folder(folder)
        files.sync_folder(folder.parent)


def create_folders(parent: Path, names: Sequence[str], body: bytes, *, version: int, files: Files) -> None:
    """Create folders in a folder, each with the same first snapshot, of record 0 and epoch 0, durably.

    Raises NoRoom after removing the new folders, if possible. After any other StorageError, some folders may
    be left, and it is unknown whether their snapshots are whole.
    """
    content = snapshot_file.encode(snapshot_file.Snapshot(0, 0, version, body))
    try:
        with storage_errors(f"folders in {parent} cannot be made"):
            files.make_folder(parent)
            begun: list[Callable[[], None]] = []
            try:
                for name in names:
                    files.add_folder(parent / name)
                    file = files.create(parent / name / snapshot_name(0))
                    begun.append(partial(_finish, file, parent / name, files))
                    write_all(file, content)
            finally:
                files.at_once(begun)
            files.sync_folder(parent)
    except NoRoom:
        # Leftovers would fill the disk further, because a retry has other names.
        for name in names:
            with contextlib.suppress(StorageError):
                destroy_folder(parent / name, files)
        raise


def _finish(file: OpenFile, folder: Path, files: Files) -> None:
    """Sync a new folder and its only file, and close the file."""
    try:
        file.sync()
    finally:
        file.close()
    files.sync_folder(folder)


def has_snapshot(folder: Path, files: Files | None = None) -> bool:
    """Whether a folder exists and has a snapshot. Raises StorageError."""
    with storage_errors(f"{folder} cannot be read"):
        return bool(listing((files or RealFiles()).names(folder)).snapshots)


def is_unused(folder: Path, files: Files | None = None) -> bool:
    """Whether a folder contains at most what `create_folder` creates. Raises StorageError."""
    files = files or RealFiles()
    with storage_errors(f"{folder} cannot be read"):
        names = listing(files.names(folder))
        written = any(files.read_start(folder / name, 1) for name in names.segments.values())
    return not (written or names.marks or names.snapshots.keys() - {0} or names.set_aside)


def destroy_folder(folder: Path, files: Files | None = None) -> None:
    """Remove a folder with its contents. May be repeated after a failure. Raises StorageError.

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
