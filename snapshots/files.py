"""The few file calls that are used here, as a Protocol: the seam where faults are injected."""

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, cast

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

_KEEP_SIZE: Final = 1
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Give Linux's call; `os.posix_fallocate` makes a file longer, which a journal must not be."""
    try:
        call = ctypes.CDLL(None, use_errno=True).fallocate64
    except (AttributeError, OSError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return cast("Callable[[int, int, int, int], int]", call)


_FALLOCATE: Final = _find_fallocate()
_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


class OpenFile(Protocol):
    """A file that is being written, from its beginning to its end."""

    def write(self, data: bytes) -> int:
        """Write some of `data`, and give how many bytes were taken; as with `os.write`, perhaps not all."""

    def write_start(self, data: bytes) -> None:
        """Write over the file's first bytes, all of `data`. What is written next still goes to the end."""

    def reserve(self, begin: int, bytes_: int) -> None:
        """See to it that so many bytes from an offset on find room. The file stays as long as it is.

        Does nothing where the file system has no such call.
        """

    def release(self, end: int) -> None:
        """Give back the room past the end of the file, which has this many bytes."""

    def sync(self) -> None:
        """Come back only when everything written is on the disk."""

    def sync_data(self) -> None:
        """Come back only when everything written can be read from the disk; its times may not be there."""

    def is_named(self, path: Path) -> bool:
        """Whether this is the file of that name."""

    def descriptor(self) -> int | None:
        """The operating system's number for the open file; None where it has none."""

    def close(self) -> None:
        """Give the descriptor back. Says nothing about the disk."""


class Files(Protocol):
    """File calls. Each raises OSError where it fails."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, in no order; none where there is no such folder."""

    def read(self, path: Path) -> bytes:
        """The whole of a file."""

    def read_start(self, path: Path, bytes_: int) -> bytes:
        """The first bytes of a file, fewer where it is shorter."""

    def create(self, path: Path) -> OpenFile:
        """A new file, empty; FileExistsError where one has that name."""

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        """Write bytes that a file has at an offset there once more; on the disk on return."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in the same folder, in one step; a file of that name is replaced."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, where they are missing; durable in their parents on return."""

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder."""

    def sync_folder(self, folder: Path) -> None:
        """Come back only when the names in a folder are on the disk."""


class _RealFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        # No other file has these while this one is open, whether it still has a name or not.
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
            status = os.stat(path)  # noqa: PTH116 -- each answer waits for it, and Path.stat takes longer
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_dev) == self._identity

    def descriptor(self) -> int | None:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class RealFiles:
    """The operating system's calls. What they make is for the owner's eyes alone."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, in no order; none where there is no such folder."""
        try:
            return [entry.name for entry in folder.iterdir()]
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> bytes:
        """The whole of a file."""
        return path.read_bytes()

    def read_start(self, path: Path, bytes_: int) -> bytes:
        """The first bytes of a file, fewer where it is shorter."""
        with path.open("rb") as file:
            return file.read(bytes_)

    def create(self, path: Path) -> OpenFile:
        """A new file, empty; FileExistsError where one has that name."""
        return _RealFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        """Write bytes that a file has at an offset there once more; on the disk on return."""
        # A link could lead anywhere. `create` follows none either, for O_EXCL forbids that.
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _write_all_at(descriptor, offset, data)
            _sync_data(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in the same folder, in one step."""
        old.rename(new)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it, where they are missing; durable in their parents on return."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        self.sync_folder(folder.parent)

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder."""
        folder.rmdir()

    def sync_folder(self, folder: Path) -> None:
        """Come back only when the names in a folder are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(file: OpenFile, data: bytes) -> None:
    """Write every byte of `data`, however many calls that takes."""
    rest = memoryview(data)
    while rest:
        taken = file.write(rest)  # type: ignore[arg-type]
        if taken <= 0:
            raise OSError(f"a write took {taken} of {len(rest)} bytes")
        rest = rest[taken:]


def _write_all_at(descriptor: int, offset: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        taken = os.pwrite(descriptor, rest, offset)
        offset += taken
        rest = rest[taken:]
