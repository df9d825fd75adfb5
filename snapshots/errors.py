"""What can be wrong with a data folder. Each names the file, and says what stands in the way."""

from pathlib import Path


class StorageError(Exception):
    """The world's error: a folder cannot be read or written as it must be."""


class Damaged(StorageError):
    """A file is not what was once written: a checksum, a length or a name does not fit."""


class Hole(StorageError):
    """Records that were there are missing: what came after them cannot be used."""


class NewerFormat(StorageError):
    """A file is whole, but of a format that only a newer program knows."""


class NothingUsable(StorageError):
    """No snapshot of a folder can be used: to start empty would be to lose them silently."""


class NoRoom(StorageError):
    """The disk has no room for what is to be written. Nothing has changed."""


class WriteFailed(StorageError):
    """A record could not be written; it is certainly not whole on the disk. Its store is of no more use."""


class SyncFailed(StorageError):
    """What was written may be on the disk, or not. Its store is of no more use."""


class Fenced(StorageError):
    """A later owner has claimed the folder; whoever meets this is no longer its owner."""


class ClaimRemoved(Fenced):
    """What says that a folder is its owner's was removed, and not by a later owner, as far as can be seen."""


class WrongFolder(StorageError):
    """What is found at the place of the data folder is not the folder that is expected."""


class FolderInUse(StorageError):
    """Another process holds the data folder."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        holder = f"by the process with pid {pid}" if pid is not None else "by another process"
        super().__init__(f"the data folder {folder} is in use {holder}")
        self.folder = folder
        self.pid = pid

    def __reduce__(self) -> tuple[type["FolderInUse"], tuple[Path, int | None]]:
        """Travel between processes by what it was made of."""
        return type(self), (self.folder, self.pid)
