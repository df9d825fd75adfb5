"""Recovers every legal crash image of a run."""

import hashlib
import random
from dataclasses import dataclass, field

from snapshots.errors import StorageError
from snapshots.store import Store
from tests.crash.model.history import FOLDER, LAST_EPOCH, History, Lost, Owner, payloads_of
from tests.crash.model.memory_disk import Image, MemoryDisk
from tests.crash.store.runs import Run


class Recoveries:
    """Recovers each distinct image once, since several moments can leave the same one."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[bytes] | StorageError] = {}

    def check(self, image: Image, history: History) -> None:
        """Raise Lost unless the image holds what was answered, perhaps followed by what was begun."""
        key = _digest(image)
        if key not in self._known:
            self._known[key] = _recovered(image)
        result = self._known[key]
        if isinstance(result, StorageError):
            if history.born:
                raise Lost(f"it refuses: {result}")
        else:
            history.judge(result)


@dataclass
class Images:
    """Recovers each distinct image of the runs once, and counts them."""

    at_most: int
    """How many images of one moment to enumerate; if there are more, this many are drawn."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    again: float = 0.0
    """The share of the images whose recovery crashes too."""
    moments: int = 0
    images: int = 0
    different: int = 0
    within_recovery: int = 0
    sampled_moments: int = 0
    _known: set[bytes] = field(default_factory=set)
    _recoveries: Recoveries = field(default_factory=Recoveries)

    def of(self, run: Run) -> None:
        """Recover what a crash may leave at each moment of a run. Raises Lost."""
        disk, history = MemoryDisk(), History()
        disk.after = lambda _: self._moment(disk, history)
        run(history, disk)
        self._moment(disk, history)

    def _moment(self, disk: MemoryDisk, history: History) -> None:
        self.moments += 1
        before = self.images
        for image in disk.images(self.at_most, self.chance):
            self.images += 1
            self._check(image, history)
        self.sampled_moments += self.images - before >= self.at_most

    def _check(self, image: Image, history: History) -> None:
        key = _digest(image)
        if key not in self._known:
            self.different += 1
            self._known.add(key)
            if history.born and self.chance.random() < self.again:
                self._crash_again(image, history)
        self._recoveries.check(image, history)

    def _crash_again(self, image: Image, history: History) -> None:
        """Crash the recovery of an image, and what comes after it, at each of its moments too."""
        disk = MemoryDisk(image)
        known = History(True, list(history.answered), list(history.views))

        def moment(_: str) -> None:
            for second in disk.images(max(2, self.at_most // 8), self.chance):
                self.within_recovery += 1
                self._recoveries.check(second, known)

        disk.after = moment
        Owner(known, disk, LAST_EPOCH, snapshots_kept=1).recover().batch(30).snapshot()


def _recovered(image: Image) -> list[bytes] | StorageError:
    try:
        return payloads_of(Store(FOLDER, epoch=2 * LAST_EPOCH, files=MemoryDisk(image)).recover())
    except StorageError as error:
        return error


def _digest(image: Image) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(image):
        digest.update(b"%s %d " % (name.encode(), len(image[name])))
        digest.update(image[name])
    return digest.digest()
