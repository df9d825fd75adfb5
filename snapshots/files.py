"""The file calls that the storage uses, as a Protocol, and the wall clock. Tests inject faults here."""

import contextlib
import ctypes
import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Final, Protocol, cast

from snapshots.errors import NoRoom, StorageError

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a full disk."""

NO_ROOM: Final = FULL | {errno.EROFS}
"""The errors of a disk that cannot be written. Some file systems become read-only after a disk error."""

_SYNCS_AT_ONCE: Final = 16

_SHORT_BYTES: Final = 4096
"""A shorter file is read in one call."""

_KEEP_SIZE: Final = 1
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's `fallocate`, if it exists; `os.posix_fallocate` would make the journal longer."""
    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate64
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return cast("Callable[[int, int, int, int], int]", call)


_FALLOCATE: Final = _find_fallocate()
_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class OpenFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> int:
        """Write some of `data` at the end; return how many bytes were taken, like `os.write`."""

    def write_start(self, data: bytes) -> None:
        """Overwrite the file's first bytes with all of `data`. The next `write` still appends."""

    def reserve(self, begin: int, bytes_: int) -> None:
        """Reserve disk space for this many bytes from an offset on, without making the file longer.

        Does nothing on a file system without such a call.
        """

    def release(self, end: int) -> None:
        """Give back the space that is reserved past the end of the file, which has `end` bytes."""

    def sync(self) -> None:
        """Return once everything written is on the disk."""

    def sync_data(self) -> None:
        """Return once everything written, except perhaps the file's times, is on the disk."""

    def is_named(self, path: Path) -> bool:
        """Whether the path names this very file."""

    def descriptor(self) -> int | None:
        """The file descriptor; None if the file has none."""

    def close(self) -> None:
        """Close the descriptor. Syncs nothing."""


class Files(Protocol):
    """File calls. Each raises OSError when it fails."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, in any order; none if there is no such folder."""

    def read(self, path: Path) -> bytes:
        """Read a whole file."""

    def read_start(self, path: Path, bytes_: int) -> bytes:
        """Read the first bytes of a file; fewer if it is shorter."""

    def changed_us(self, path: Path) -> int:
        """Return when a file was last written, in microseconds since 1970."""

    def create(self, path: Path) -> OpenFile:
        """Create an empty file. Raises FileExistsError if the name is taken."""

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        """Rewrite the existing bytes of a file at an offset, and sync them."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file within its folder, atomically, replacing any file of the new name."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its missing parents, and sync their names."""

    def add_folder(self, folder: Path) -> None:
        """Create a folder in an existing one, without a sync. Raises FileExistsError if the name is taken."""

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder."""

    def sync_folder(self, folder: Path) -> None:
        """Return once the names in a folder are on the disk."""

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls that sync concurrently. After all have ended, raises what one of them has raised.

        The file system merges concurrent syncs.
        """


class _RealFile(OpenFile):
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        # No other file can have this identity while this one is open, even after its name is gone.
        self._identity = status.st_ino, status.st_dev

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def write_start(self, data: bytes) -> None:
        _write_all_at(self._descriptor, 0, data)

    def reserve(self, begin: int, bytes_: int) -> None:
        if _FALLOCATE is None:
            return
        if _FALLOCATE(self._descriptor, _KEEP_SIZE, begin, bytes_) != 0:
            error = ctypes.get_errno()
            if error not in _UNSUPPORTED:
                raise OSError(error, os.strerror(error))

    def release(self, end: int) -> None:
        os.ftruncate(self._descriptor, end)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def sync_data(self) -> None:
        _sync_data(self._descriptor)

    def is_named(self, path: Path) -> bool:
        try:
            status = os.stat(path)  # noqa: PTH116 -- every answer waits for it, and Path.stat is slower
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_dev) == self._identity

    def descriptor(self) -> int | None:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class RealFiles(Files):
    """The operating system's calls. Files and folders are readable only by their user."""

    def names(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)  # noqa: PTH208 -- each activation lists twice, and Path.iterdir is slower
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> bytes:
        descriptor = open_regular(path)
        try:
            start = os.read(descriptor, _SHORT_BYTES)
            if len(start) < _SHORT_BYTES:
                return start
            os.lseek(descriptor, 0, os.SEEK_SET)
            # No buffer, which would only be copied: everything is read at once.
            with FileIO(descriptor, closefd=False) as file:
                return file.readall()
        finally:
            os.close(descriptor)

    def read_start(self, path: Path, bytes_: int) -> bytes:
        # Each activation reads several files, and a file object takes longer than the read.
        descriptor = open_regular(path)
        try:
            return os.read(descriptor, bytes_)
        finally:
            os.close(descriptor)

    def changed_us(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000

    def create(self, path: Path) -> OpenFile:
        return _RealFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        # A symbolic link could lead anywhere. `create` does not follow links either, because of O_EXCL.
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _write_all_at(descriptor, offset, data)
            _sync_data(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def remove(self, path: Path) -> None:
        path.unlink()

    def make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        self.sync_folder(folder.parent)

    def add_folder(self, folder: Path) -> None:
        folder.mkdir(mode=FOLDER_MODE)

    def remove_folder(self, folder: Path) -> None:
        folder.rmdir()

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        if len(calls) == 1:
            calls[0]()
            return
        done = [_syncing().submit(call) for call in calls]
        wait(done)
        for one in done:
            one.result()


@cache
def _syncing() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="sync")


class storage_errors:  # noqa: N801 -- a function with a decorator takes ten times as long
    """Turns an OSError into a StorageError: NoRoom if the disk takes no writes. `what` begins the message."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            kind = NoRoom if error.errno in NO_ROOM else StorageError
            raise kind(f"{self._what}: {error}") from error


def close_and_remove(file: OpenFile, path: Path, files: Files) -> None:
    """Close a file that is no longer needed, and remove it if possible."""
    with contextlib.suppress(OSError):
        file.close()
    with contextlib.suppress(OSError):
        files.remove(path)


def write_all(file: OpenFile, data: bytes) -> None:
    """Write all of `data`, in as many calls as necessary."""
    rest = memoryview(data)
    while rest:
        taken = file.write(rest)  # type: ignore[arg-type]
        if taken <= 0:
            raise OSError(f"a write took {taken} of {len(rest)} bytes")
        rest = rest[taken:]


def open_regular(path: Path) -> int:
    """Open a regular file for reading, and return the descriptor. Raises OSError.

    A stranger's backup could contain a symbolic link to any file of this user, or a pipe, which would block
    the opening process.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "it is a symbolic link, and must not be", str(path)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


def _write_all_at(descriptor: int, offset: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        taken = os.pwrite(descriptor, rest, offset)
        offset += taken
        rest = rest[taken:]


def wall_clock_us() -> int:
    """Return the current time, in microseconds since 1970."""
    return time.time_ns() // 1_000
