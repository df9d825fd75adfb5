"""A disk in memory with several folders, and the crash images of all of them together.

Each folder is a MemoryDisk. A folder is made durably, as `make_folder` promises. Until the folder above is
synced, one that was added may be gone, and one that was removed may come back. In images, files are known by
their paths, and folders by theirs with a slash at the end.
"""

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from snapshots.files import OpenFile
from tests.crash.model.memory_disk import Image, MemoryDisk

Moment = Callable[[str, Path], None]


class FoldersDisk:
    """Files in memory, in folders. `before` and `after` are called for each change, with its folder."""

    def __init__(self, image: Image | None = None) -> None:
        self.folders: dict[Path, MemoryDisk] = {}
        self.added: dict[Path, MemoryDisk] = {}
        """Folders that may not be on the disk yet."""
        self.removed: dict[Path, MemoryDisk] = {}
        """Folders whose removal may not be on the disk yet."""
        self.before: Moment = lambda _, __: None
        self.after: Moment = lambda _, __: None
        files: dict[Path, Image] = {}
        for name, data in (image or {}).items():
            path = Path(name)
            if name.endswith("/"):
                files.setdefault(path, {})
            else:
                files.setdefault(path.parent, {})[path.name] = data
        for folder, of_folder in files.items():
            self._add(folder, MemoryDisk(of_folder))

    def image(self) -> Image:
        """The content while the machine runs."""
        return _joined({folder: disk.image() for folder, disk in self.folders.items()})

    def images(self, at_most: int, chance: random.Random) -> Iterator[Image]:
        """What a crash of the machine may leave; a sample if that is more than `at_most`."""
        unsure = self.added | self.removed
        for found in itertools.product((False, True), repeat=len(unsure)):
            there = {folder: disk for folder, disk in self.folders.items() if folder not in unsure}
            for (folder, disk), is_there in zip(unsure.items(), found, strict=True):
                if is_there:
                    there[folder] = disk
            lists = [list(disk.images(at_most, chance)) for disk in there.values()]
            total = 1
            for one in lists:
                total *= len(one)
            picks: Iterator[tuple[Image, ...]] = itertools.product(*lists)
            if total > at_most:
                # The first and the last of each: almost nothing happened, and almost everything did.
                ends = [tuple(one[end] for one in lists) for end in (0, -1)]
                drawn = [tuple(map(chance.choice, lists)) for _ in range(at_most - len(ends))]
                picks = iter([*ends, *drawn])
            for picked in picks:
                yield _joined(dict(zip(there, picked, strict=True)))

    # -- what Files has --------------------------------------------------------------------------------------

    def names(self, folder: Path) -> list[str]:
        if folder not in self.folders:
            return []
        within = [path.name for path in self.folders if path.parent == folder and path != folder]
        return [*self.folders[folder].names(folder), *within]

    def read(self, path: Path) -> bytes:
        return self._of(path).read(path)

    def read_start(self, path: Path, bytes_: int) -> bytes:
        return self._of(path).read_start(path, bytes_)

    def changed_us(self, path: Path) -> int:
        return self._of(path).changed_us(path)

    def create(self, path: Path) -> OpenFile:
        self.before("create", path.parent)
        return self._of(path).create(path)

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        self._of(path).write_again(path, offset, data)

    def rename(self, old: Path, new: Path) -> None:
        self.before("rename", old.parent)
        self._of(old).rename(old, new)

    def remove(self, path: Path) -> None:
        self._of(path).remove(path)

    def make_folder(self, folder: Path) -> None:
        for one in (*reversed(folder.parents), folder):
            if one not in self.folders:
                self._add(one, MemoryDisk())
        self.after("make_folder", folder)

    def add_folder(self, folder: Path) -> None:
        if folder in self.folders:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        self._of(folder)
        self._add(folder, MemoryDisk())
        self.added[folder] = self.folders[folder]
        self.after("add_folder", folder)

    def remove_folder(self, folder: Path) -> None:
        disk = self._of(folder / "any")
        if disk.live:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
        self.removed[folder] = self.folders.pop(folder)
        self.after("remove_folder", folder)

    def sync_folder(self, folder: Path) -> None:
        for unsure in (self.added, self.removed):
            for known in [one for one in unsure if one.parent == folder]:
                del unsure[known]
        self._of(folder / "any").sync_folder(folder)

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        for call in calls:
            call()

    def _of(self, path: Path) -> MemoryDisk:
        if path.parent not in self.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self.folders[path.parent]

    def _add(self, folder: Path, disk: MemoryDisk) -> None:
        def called(what: str) -> None:
            if what == "write":
                self.before(what, folder)

        self.folders[folder] = disk
        disk.call = called  # type: ignore[method-assign]
        disk.after = lambda what: self.after(what, folder)


def _joined(folders: dict[Path, Image]) -> Image:
    image: Image = {}
    for folder, files in folders.items():
        image[f"{folder}/"] = b""
        image |= {str(folder / name): data for name, data in files.items()}
    return image
