"""Makes each file call of a run fail in turn, or be the last one before the process dies."""

import errno
import random
from dataclasses import dataclass, field

from tests.crash.model.history import LAST_EPOCH, History, Owner
from tests.crash.model.memory_disk import MemoryDisk
from tests.crash.store.crash_images import Recoveries
from tests.crash.store.runs import Run
from tests.faulty_files import Died, FaultyFiles

FAULTS: dict[str, dict[str, object]] = {
    "EIO": {"error": errno.EIO},
    "EIO for good": {"error": errno.EIO, "for_good": True},
    "ENOSPC": {"error": errno.ENOSPC},
    "ENOSPC for good": {"error": errno.ENOSPC, "for_good": True},
    "short writes": {"short": True},
    "death": {"dies": True},
}


@dataclass
class FileFaults:
    """Injects faults into runs, recovers after each, and counts."""

    images_at_most: int
    """How many crash images of the moment after each fault to recover, too."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    faults: int = 0
    not_met: int = 0
    images: int = 0
    _recoveries: Recoveries = field(default_factory=Recoveries)

    def of(self, run: Run) -> None:
        """Inject every fault into every call of a run. Raises Lost."""
        for settings in FAULTS.values():
            number = 0
            while self._put(run, number, settings):
                number += 1

    def _put(self, run: Run, number: int, settings: dict[str, object]) -> bool:
        """Inject one fault into one call; return whether there was such a call."""
        disk, history = MemoryDisk(), History(tolerant=True)
        faulty = FaultyFiles(number, files=disk, **settings)
        try:
            run(history, faulty)
        except Died:
            pass
        except Exception:
            if history.born:
                raise
        if len(faulty.calls) <= number:
            return False
        if not faulty.failed:
            self.not_met += 1
            return True
        self.faults += 1
        for image in disk.images(self.images_at_most, self.chance):
            self.images += 1
            self._recoveries.check(image, history)
        if history.born:
            # The next owner builds on what was left, and then the machine crashes.
            Owner(history, disk, LAST_EPOCH, snapshots_kept=1).recover().batch(30)
            for image in disk.images(self.images_at_most, self.chance):
                self.images += 1
                self._recoveries.check(image, history)
        return True
