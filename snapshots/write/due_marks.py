"""Empty files whose names show when something is due in a folder, without reading its contents."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from snapshots.errors import NoRoom
from snapshots.files import Files, storage_errors
from snapshots.format.file_names import DUE, due_name, listing

UNKNOWN_US: Final = 0
"""An unknown time: something may be due now."""


class DueMarks:
    """The marks of a folder, for its owner. Each method raises StorageError.

    During an ownership, a mark only says that something may be due if the owner dies. When the owner leaves,
    its mark has the time. Without a mark, nothing is due.

    A mark may be missing on a full disk. Due work is then found when the folder is next recovered.
    """

    def __init__(self, folder: Path, epoch: int, found: Iterable[str], files: Files) -> None:
        self._folder = folder
        self._epoch = epoch
        self._marks = list(found)
        self._files = files
        self._kept: str | None = None
        """The mark that lasts as long as this owner."""

    @property
    def any(self) -> bool:
        """Whether there are marks."""
        return bool(self._marks)

    def recovered(self) -> None:
        """Note that something is due in the recovered contents.

        An existing mark suffices: if the previous owner is still running, it removes no mark without making
        another one. If nothing is due, it may remove the last one.
        """
        self._kept = self._marks[-1] if self._marks else None

    def mark(self) -> None:
        """Mark that something may be due. Must be called before the cause can be on the disk."""
        if self._kept is not None:
            return
        with suppress(NoRoom), storage_errors(f"{self._folder} cannot be written"):
            name = self._make(UNKNOWN_US)
            self._files.sync_folder(self._folder)
            self._kept = name

    def leave(self, due_us: int | None) -> None:
        """Mark when something is due after this owner, or that nothing is.

        There must be no other owner. The names are not synced, so if something is due, one earlier mark
        stays: if the machine loses the new mark, the earlier one says that something may be due.
        """
        earlier = [name for name in self._marks if due_us is None or name != self._kept]
        with suppress(NoRoom), storage_errors(f"{self._folder} cannot be written"):
            if due_us is not None:
                self._make(max(1, due_us))
            for name in earlier:
                with suppress(FileNotFoundError):
                    self._files.remove(self._folder / name)

    def _make(self, due_us: int) -> str:
        name = due_name(self._epoch, due_us)
        self._marks.append(name)
        self._files.create(self._folder / name).close()
        return name


def due_times(parent: Path, names: Iterable[str], files: Files) -> dict[str, int]:
    """Return when something is due in folders without an owner, by name; UNKNOWN_US if unknown.

    Folders in which nothing is due are left out. Raises StorageError.
    """
    found = {}
    with storage_errors(f"{parent} cannot be read"):
        for name in names:
            files_there = files.names(parent / name)
            # Nearly all folders have no mark, and classifying names takes longer than reading them.
            if any(one.startswith(DUE) for one in files_there):
                due_us = listing(files_there).due_us
                if due_us is not None:
                    found[name] = due_us
    return found


def mark_folder(folder: Path, files: Files, *, epoch: int = 0) -> None:
    """Mark that something may be due in a folder without an owner. May be repeated. Raises StorageError."""
    with storage_errors(f"{folder} cannot be written"):
        with suppress(FileExistsError):
            files.create(folder / due_name(epoch, UNKNOWN_US)).close()
        files.sync_folder(folder)
