"""A disk in memory that enumerates every legal crash image: what a crash of the machine may leave of it.

The method is that of ALICE (Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014). What was
synced is there. Of what was written to a file since its last sync each 512-byte sector may be as it was
before or after any of the writes, and the file as long as it was at any time or at any sector's end
between; what it has then and was never written is zeros. Of the names that were made, given and removed
since the last sync of the folder any subset may have happened.
"""

import errno
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from snapshots.files import OpenFile

SECTOR_BYTES = 512
Image = dict[str, bytes]


class Inode:
    """A file without its name: its content, and what of it is not synced."""

    def __init__(self, data: bytes = b"") -> None:
        self.live = bytearray(data)
        self.durable = bytes(data)
        self.pending: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        if data:
            _put(self.live, offset, data)
            self.pending.append((offset, bytes(data)))

    def sync(self) -> None:
        data = bytearray(self.durable)
        for offset, written in self.pending:
            _put(data, offset, written)
        self.durable = bytes(data)
        self.pending.clear()

    def forget(self) -> None:
        """What a failed sync leaves: pages that can be read, and that no later sync will write."""
        self.pending.clear()

    def contents(self, at_most: int, chance: random.Random) -> list[bytes]:
        """What a crash may leave in the file: all possibilities up to `at_most`, otherwise a sample."""
        if not self.pending:
            return [self.durable]
        versions, sizes = self._versions()
        choices = [range(len(versions[sector])) for sector in sorted(versions)]
        total = len(sizes)
        for choice in choices:
            total *= len(choice)
        picks: Iterator[tuple[int, ...]]
        if total <= at_most:
            picks = itertools.product(sizes, *choices)
        else:
            # Everything, nothing, and one sector lost, at full length; the rest at random.
            last = tuple(len(choice) - 1 for choice in choices)
            certain = [(sizes[-1], *last), (sizes[0], *last), (sizes[-1], *(0 for _ in last))]
            certain += [
                (sizes[-1], *last[:lost], 0, *last[lost + 1 :])
                for lost in range(min(len(last), at_most // 2))
            ]
            drawn = (
                (chance.choice(sizes), *(chance.choice(choice) for choice in choices))
                for _ in range(max(0, at_most - len(certain)))
            )
            picks = itertools.chain(certain, drawn)
        return list(dict.fromkeys(self._content(versions, pick[0], pick[1:]) for pick in picks))

    def _versions(self) -> tuple[dict[int, list[bytes]], list[int]]:
        versions: dict[int, list[bytes]] = {}
        data = bytearray(self.durable)
        sizes = {len(data)}
        for offset, written in self.pending:
            touched = range(offset // SECTOR_BYTES, (offset + len(written) - 1) // SECTOR_BYTES + 1)
            for sector in touched:
                versions.setdefault(sector, [_sector(data, sector)])
            before = len(data)
            _put(data, offset, written)
            for sector in touched:
                versions[sector].append(_sector(data, sector))
            sizes.add(len(data))
            sizes.update(range(before - before % SECTOR_BYTES + SECTOR_BYTES, len(data), SECTOR_BYTES))
        return versions, sorted(sizes)

    def _content(self, versions: dict[int, list[bytes]], size: int, pick: tuple[int, ...]) -> bytes:
        data = bytearray(self.durable.ljust(size, b"\0"))
        for sector, version in zip(sorted(versions), pick, strict=True):
            _put(data, sector * SECTOR_BYTES, versions[sector][version])
        return bytes(data[:size]).ljust(size, b"\0")


class MemoryDisk:
    """Files in memory, in one folder. `after` is called after each call that changed something."""

    def __init__(self, image: Image | None = None) -> None:
        self.live = {name: Inode(data) for name, data in (image or {}).items()}
        self.durable = dict(self.live)
        self.pending: list[tuple[str, str, str, Inode]] = []
        self.calls = 0
        self.after: Callable[[str], None] = lambda _: None

    def image(self) -> Image:
        """The content while the machine runs."""
        return {name: bytes(inode.live) for name, inode in self.live.items()}

    def images(self, at_most: int, chance: random.Random) -> Iterator[Image]:
        """What a crash of the machine may leave; all possibilities if each part has few."""
        contents = dict[int, list[bytes]]()
        seen = set[frozenset[tuple[str, int]]]()
        for subset in _subsets(len(self.pending), at_most, chance):
            names = dict(self.durable)
            for wanted, operation in zip(subset, self.pending, strict=True):
                if wanted:
                    _apply(names, operation)
            known = frozenset((name, id(inode)) for name, inode in names.items())
            if known in seen:
                continue
            seen.add(known)
            for inode in names.values():
                if id(inode) not in contents:
                    contents[id(inode)] = inode.contents(at_most, chance)
            lists = [contents[id(inode)] for inode in names.values()]
            total = 1
            for one in lists:
                total *= len(one)
            if total <= at_most:
                for picked in itertools.product(*lists):
                    yield dict(zip(names, picked, strict=True))
            else:
                for _ in range(at_most):
                    yield {name: chance.choice(one) for name, one in zip(names, lists, strict=True)}

    def call(self, _: str) -> None:
        self.calls += 1

    def names(self, folder: Path) -> list[str]:
        self.call("names")
        return list(self.live)

    def read(self, path: Path) -> bytes:
        self.call("read")
        return bytes(self._inode(path).live)

    def read_start(self, path: Path, bytes_: int) -> bytes:
        self.call("read_start")
        return bytes(self._inode(path).live[:bytes_])

    def changed_us(self, path: Path) -> int:
        self._inode(path)
        return 0

    def create(self, path: Path) -> OpenFile:
        self.call("create")
        if path.name in self.live:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        inode = Inode()
        self._change("create", path.name, path.name, inode)
        self.after("create")
        return MemoryFile(self, inode)

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        self.call("write_again")
        inode = self._inode(path)
        inode.write(offset, data)
        self.after("write_again")
        inode.sync()

    def rename(self, old: Path, new: Path) -> None:
        self.call("rename")
        self._change("rename", old.name, new.name, self._inode(old))
        self.after("rename")

    def remove(self, path: Path) -> None:
        self.call("remove")
        self._change("remove", path.name, path.name, self._inode(path))
        self.after("remove")

    def make_folder(self, folder: Path) -> None:
        self.call("make_folder")

    def remove_folder(self, folder: Path) -> None:
        self.call("remove_folder")
        if self.live:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))

    def sync_folder(self, folder: Path) -> None:
        self.call("sync_folder")
        self.durable = dict(self.live)
        self.pending.clear()
        self.after("sync_folder")

    def _inode(self, path: Path) -> Inode:
        if path.name not in self.live:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self.live[path.name]

    def _change(self, kind: str, old: str, new: str, inode: Inode) -> None:
        operation = (kind, old, new, inode)
        _apply(self.live, operation)
        self.pending.append(operation)


class MemoryFile:
    """A file of a MemoryDisk that is being written."""

    def __init__(self, disk: MemoryDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write(self, data: bytes) -> int:
        self._disk.call("write")
        self._inode.write(len(self._inode.live), bytes(data))
        self._disk.after("write")
        return len(data)

    def write_start(self, data: bytes) -> None:
        self._disk.call("write_start")
        self._inode.write(0, data)
        self._disk.after("write_start")

    def reserve(self, begin: int, bytes_: int) -> None:
        self._disk.call("reserve")

    def release(self, end: int) -> None:
        self._disk.call("release")

    def sync(self) -> None:
        self._disk.call("sync")
        self._inode.sync()
        self._disk.after("sync")

    def sync_data(self) -> None:
        self._disk.call("sync_data")
        self._inode.sync()
        self._disk.after("sync_data")

    def forget(self) -> None:
        self._inode.forget()

    def is_named(self, path: Path) -> bool:
        self._disk.call("is_named")
        return self._disk.live.get(path.name) is self._inode

    def descriptor(self) -> int | None:
        return None

    def close(self) -> None:
        self._disk.call("close")


def _apply(names: dict[str, Inode], operation: tuple[str, str, str, Inode]) -> None:
    kind, old, new, inode = operation
    if kind in {"rename", "remove"} and names.get(old) is inode:
        del names[old]
    if kind in {"rename", "create"}:
        names[new] = inode


def _subsets(count: int, at_most: int, chance: random.Random) -> Iterator[tuple[bool, ...]]:
    if 2**count <= at_most:
        yield from itertools.product((False, True), repeat=count)
        return
    for happened in range(count + 1):
        yield tuple(number < happened for number in range(count))
    for _ in range(at_most - count - 1):
        yield tuple(chance.random() < 0.5 for _ in range(count))


def _put(data: bytearray, offset: int, written: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(written)] = written


def _sector(data: bytearray, sector: int) -> bytes:
    return bytes(data[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")
