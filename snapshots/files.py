"""The few file calls that are used here, as a Protocol: the seam where faults are injected."""

import os
from pathlib import Path
from typing import Final, Protocol

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class OpenFile(Protocol):
    """A file that is being written, from its beginning to its end."""

    def write(self, data: bytes) -> int:
        """Write some of `data`, and give how many bytes were taken; as with `os.write`, perhaps not all."""

    def sync(self) -> None:
        """Come back only when everything written is on the disk."""

    def close(self) -> None:
        """Give the descriptor back. Says nothing about the disk."""


class Files(Protocol):
    """File calls. Each raises OSError where it fails."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, in no order; none where there is no such folder."""

    def read(self, path: Path) -> bytes:
        """The whole of a file."""

    def create(self, path: Path) -> OpenFile:
        """A new file, empty; FileExistsError where one has that name."""

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

    def write(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def sync(self) -> None:
        os.fsync(self._descriptor)

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

    def create(self, path: Path) -> OpenFile:
        """A new file, empty; FileExistsError where one has that name."""
        return _RealFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))

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
