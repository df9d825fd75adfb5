"""The errors of the storage. Each message names the file and the reason."""

from pathlib import Path


class StorageError(Exception):
    """A folder cannot be read or written. The base class of all storage errors."""


class Damaged(StorageError):
    """A file differs from what was written: a checksum, a length or a name does not fit."""


class Hole(StorageError):
    """Records that once existed are missing, so that later ones cannot be used."""


class NewerFormat(StorageError):
    """A file is whole, but only a newer program can read its format."""


class OlderFormat(StorageError):
    """A file is whole, but only an older program, which was never released, can read its format."""


def other_format(done: str, version: int, newest: int, oldest: int | None = None) -> StorageError:
    """Return the error for data of another program with a version that this one does not know."""
    newer = version > newest
    known = f"version {newest}" if oldest is None else f"versions {oldest} to {newest}"
    return (NewerFormat if newer else OlderFormat)(
        f"{done} by a{' newer' if newer else 'n older'} program, with version {version}; "
        f"this one knows {known}"
    )


class NothingUsable(StorageError):
    """No snapshot of a folder can be used. Starting empty would silently lose data."""


class NoRoom(StorageError):
    """The disk is full or read-only. Nothing has changed."""


class WriteFailed(StorageError):
    """A record could not be written; it is certainly not whole on the disk. The store is broken."""


class SyncFailed(StorageError):
    """A sync failed, so it is unknown what is on the disk. The store is broken."""


class Fenced(StorageError):
    """A later owner has claimed the folder; this one is no longer its owner."""


class ClaimRemoved(Fenced):
    """This owner's claim was removed, but there is no later owner."""


class WrongFolder(StorageError):
    """The folder at the data folder's path is not the expected one."""


class UnsafeFolder(WrongFolder):
    """The data folder's file system does not do what the storage relies on."""


class FolderInUse(StorageError):
    """Another process holds the lock on the data folder."""

    def __init__(self, folder: Path, pid: int | None, host: str = "") -> None:
        """`host` is the machine of the process, empty if unknown."""
        holder = f"by the process with pid {pid}" if pid is not None else "by another process"
        where = f" on the host {host}" if host else ""
        super().__init__(f"the data folder {folder} is in use {holder}{where}")
        self.folder = folder
        self.pid = pid
        self.host = host

    def __reduce__(self) -> tuple[type["FolderInUse"], tuple[Path, int | None, str]]:
        """Pickle the arguments instead of the message."""
        return type(self), (self.folder, self.pid, self.host)
