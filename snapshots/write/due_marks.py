"""Empty files whose names say when something is due in a folder, so that nobody need read it to know."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from snapshots.errors import NoRoom
from snapshots.files import Files, storage_errors
from snapshots.format.file_names import DUE, due_name, listing

UNKNOWN_US: Final = 0
"""Stands for a time that is not known: something may be due now."""


class DueMarks:
    """The marks of a folder, for its owner. Each method raises StorageError.

    While an owner is there, a mark says only that something may be due should the owner die. When it leaves,
    its mark says when. Without a mark, nothing is due.

    A mark may be missing on a full disk. What is due is then found when somebody needs the folder.
    """

    def __init__(self, folder: Path, epoch: int, found: Iterable[str], files: Files) -> None:
        self._folder = folder
        self._epoch = epoch
        self._marks = list(found)
        self._files = files
        self._kept: str | None = None
        """The mark that is there as long as this owner is."""

    @property
    def any(self) -> bool:
        """Whether there are marks."""
        return bool(self._marks)

    def recovered(self) -> None:
        """Note that something is due in what was recovered.

        If that is marked, it suffices: the owner before, if it still runs, removes no mark without making
        another one. Where nothing is due, it may remove the last one.
        """
        self._kept = self._marks[-1] if self._marks else None

    def mark(self) -> None:
        """Mark that something may be due. Call it before what makes it so can be on the disk."""
        if self._kept is not None:
            return
        with suppress(NoRoom), storage_errors(f"{self._folder} cannot be written"):
            name = self._make(UNKNOWN_US)
            self._files.sync_folder(self._folder)
            self._kept = name

    def leave(self, due_us: int | None) -> None:
        """Mark when something is due after this owner, or that nothing is.

        Nobody else may own the folder. The names are not synced. So where something is due, one earlier mark
        stays: if the machine loses the new one, that says that something may be due.
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
    """Return when something is due in folders that nobody owns, by their names; UNKNOWN_US if not known.

    Those in which nothing is due are left out. Raises StorageError.
    """
    found = {}
    with storage_errors(f"{parent} cannot be read"):
        for name in names:
            files_there = files.names(parent / name)
            # Nearly all folders have no mark, and to sort names takes longer than to read them.
            if any(one.startswith(DUE) for one in files_there):
                due_us = listing(files_there).due_us
                if due_us is not None:
                    found[name] = due_us
    return found


def mark_folder(folder: Path, files: Files, *, epoch: int = 0) -> None:
    """Mark that something may be due in a folder that nobody owns. May be repeated. Raises StorageError."""
    with storage_errors(f"{folder} cannot be written"):
        with suppress(FileExistsError):
            files.create(folder / due_name(epoch, UNKNOWN_US)).close()
        files.sync_folder(folder)
