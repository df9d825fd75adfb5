"""Corrupts files: every prefix, every flipped bit, sectors of zeros, missing files."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from snapshots.errors import Damaged, StorageError
from snapshots.inspection import read_only
from snapshots.store import Store
from tests.crash.model.history import FOLDER, LAST_EPOCH, History, Lost, Owner, create, payloads_of
from tests.crash.model.memory_disk import SECTOR_BYTES, Image, MemoryDisk


def small_folder() -> tuple[History, Image]:
    """A folder with two owners' segments and two snapshots, all answered."""
    disk, history = MemoryDisk(), History()
    create(history, disk)
    Owner(history, disk, 1).recover().batch(20).batch(20, 20).snapshot().batch(20)
    Owner(history, disk, 2).recover().batch(20).batch(30)
    return history, disk.image()


def ends_near_a_sector() -> Iterator[tuple[History, Image]]:
    """Folders whose last record begins or ends at each position around the end of a sector."""
    for size in range(330, 480):
        disk, history = MemoryDisk(), History()
        create(history, disk)
        Owner(history, disk, 1).recover().batch(size).batch(20)
        yield history, disk.image()


def long_folder() -> tuple[History, Image]:
    """A folder with a segment of many sectors, all answered."""
    disk, history = MemoryDisk(), History()
    create(history, disk)
    owner = Owner(history, disk, 1).recover()
    for size in (700, 300, 1500, 100, 600):
        owner.batch(size)
    return history, disk.image()


def folder_of_segments() -> tuple[History, Image]:
    """A folder with several segments of two owners, all answered and all needed."""
    disk, history = MemoryDisk(), History()
    create(history, disk)
    Owner(history, disk, 1, segment_bytes_max=50).recover().batch(20).batch(20).batch(20)
    Owner(history, disk, 2, segment_bytes_max=50).recover().batch(20).batch(20)
    return history, disk.image()


def worlds() -> Iterator[tuple[str, History, Image]]:
    """Small folders with answered records, as their owners left them or still use them."""
    lives: dict[str, tuple[Callable[[Owner], object], ...]] = {
        "one record": (lambda it: it.batch(20),),
        "many records": (lambda it: it.batch(20).batch(30, 40).batch(700),),
        "a record since a snapshot": (lambda it: it.batch(20).snapshot().batch(20),),
        "a snapshot and no record since": (lambda it: it.batch(20).snapshot(),),
        "released": (lambda it: it.batch(20).release(),),
        "released after a snapshot": (lambda it: it.batch(20).snapshot_to_release().release(),),
        "several owners": (
            lambda it: it.batch(20),
            lambda it: it.batch(20).release(),
            lambda it: it.batch(20),
        ),
        "an owner that wrote nothing": (lambda it: it.batch(20).release(), lambda it: it.release()),
        "an owner that only read": (lambda it: it.batch(20), lambda it: it.answer().release()),
        "owners with snapshots": (
            lambda it: it.batch(20).snapshot_to_release().release(),
            lambda it: it.batch(20).snapshot().batch(20),
            lambda it: it.batch(20).batch(20),
        ),
    }
    for kept in (1, 2, 3):
        for name, owners in lives.items():
            disk, history = MemoryDisk(), History()
            create(history, disk)
            for epoch, live in enumerate(owners, 1):
                live(Owner(history, disk, epoch, snapshots_kept=kept, segment_bytes_max=90).recover())
            yield f"{name}, {kept} kept", history, disk.image()


@dataclass
class Changed:
    """Recovers changed folders, and counts the results."""

    changed: int = 0
    exact: int = 0
    refused: int = 0

    def flip_bits(
        self,
        history: History,
        image: Image,
        bits: Callable[[], Iterable[int]] = lambda: range(8),
        last_bytes: int | None = None,
    ) -> None:
        """A flipped bit of any byte gives exactly what was answered, or a refusal. Raises Lost.

        `bits` says for each byte which of its bits to flip.
        """
        for name, data in image.items():
            begin = 0 if last_bytes is None else max(0, len(data) - last_bytes)
            for place in range(begin, len(data)):
                for bit in bits():
                    flipped = bytearray(data)
                    flipped[place] ^= 1 << bit
                    told = f"bit {bit} of byte {place} of {name}"
                    self._exact_or_refused(history, {**image, name: bytes(flipped)}, told)

    def zero_every_sector(self, history: History, image: Image) -> None:
        """A sector of zeros loses only the last records, none of which begins after it."""
        for name, data in image.items():
            begins = [
                record.offset
                for record in read_only(FOLDER, MemoryDisk(image)).records
                if record.path.name == name
            ]
            for begin in range(0, len(data), SECTOR_BYTES):
                end = min(begin + SECTOR_BYTES, len(data))
                self.changed += 1
                try:
                    zeroed = data[:begin] + bytes(end - begin) + data[end:]
                    found = payloads_of(_store({**image, name: zeroed}).recover())
                except StorageError:
                    self.refused += 1
                    continue
                if found != history.answered and (
                    found != history.answered[: len(found)] or any(offset >= end for offset in begins)
                ):
                    raise Lost(
                        f"zeros at {begin} of {name} leave {len(found)} of {len(history.answered)} records"
                    )
                self.exact += found == history.answered

    def remove_every_file(self, history: History, image: Image) -> None:
        """A folder without any one file gives exactly what was answered, or a refusal. Raises Lost."""
        for name in image:
            without = {other: data for other, data in image.items() if other != name}
            self._exact_or_refused(history, without, f"without {name}")
        # In a folder without marks, the loss of the last written segment may go unnoticed.
        unmarked = {name: data for name, data in image.items() if not name.startswith("mark")}
        for name in unmarked.keys() - {_last(image)}:
            without = {other: data for other, data in unmarked.items() if other != name}
            self._exact_or_refused(history, without, f"without {name} and without marks")

    def cut_every_file(self, history: History, image: Image) -> None:
        """A truncated file gives what was answered, or a refusal; the last one gives its whole records."""
        last = _last(image)
        for name, data in image.items():
            for length in range(len(data)):
                cut = {**image, name: data[:length]}
                if name == last:
                    self._whole_records(history, cut, length)
                else:
                    self._exact_or_refused(history, cut, f"the first {length} bytes of {name}")

    def _exact_or_refused(self, history: History, image: Image, told: str) -> None:
        self.changed += 1
        try:
            found = payloads_of(_store(image).recover())
        except StorageError:
            self.refused += 1
            return
        if found != history.answered:
            raise Lost(f"{told}: {len(found)} records instead of {len(history.answered)}")
        self.exact += 1

    def _whole_records(self, history: History, image: Image, length: int) -> None:
        """Check that the image reads like an unfinished write: all before the cut, and nothing else."""
        self.changed += 1
        everything = history.answered
        # The last segment has a header and two records.
        ends = (44, 44 + 40 + 20, 44 + 40 + 20 + 40 + 30)
        lost = sum(length < end for end in ends[1:])
        try:
            found = payloads_of(_store(image).recover())
        except Damaged as error:
            raise Lost(f"a cut at {length} is no damage: {error}") from error
        if found != everything[: len(everything) - lost]:
            raise Lost(f"a cut at {length} leaves {len(found)} of {len(everything)} records")
        self.exact += 1


def _last(image: Image) -> str:
    """The last segment."""
    return max((name for name in image if name.startswith("journal") and image[name]), default="")


def _store(image: Image) -> Store:
    return Store(FOLDER, epoch=LAST_EPOCH, files=MemoryDisk(image))
