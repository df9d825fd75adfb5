"""Interleaves several owners of one folder at their file calls."""

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from snapshots.errors import Fenced, StorageError
from snapshots.inspection import read_only
from tests.crash.model.history import FOLDER, History, Lost, Owner, create, payloads_of
from tests.crash.model.memory_disk import MemoryDisk
from tests.faulty_files import FaultyFiles

Script = Callable[[Owner], object]
Schedule = Sequence[tuple[int, int]]
"""Which owner runs, and for how many of its file calls; afterwards each runs to its end, in order."""

_PRIVATE = frozenset({"close", "reserve", "release"})
"""Calls that no other owner can notice."""


class SteppedFiles(FaultyFiles):
    """Files that wait for permission before each call."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(files=disk)
        self.go = threading.Semaphore(0)
        self.back = threading.Semaphore(0)

    def pause(self) -> None:
        self.back.release()
        self.go.acquire()

    def _may_fail(self, what: str, first: object = None) -> None:
        self.calls.append(what)
        if what not in _PRIVATE:
            self.pause()


class Stepped:
    """An owner that runs one file call at a time."""

    def __init__(self, owner: Owner, files: SteppedFiles, script: Script) -> None:
        self.done = False
        self.steps = 0
        self.error: BaseException | None = None
        self._files = files
        self._owner = owner
        self._script = script
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def step(self) -> None:
        if not self.done:
            self.steps += 1
            self._files.go.release()
            self._files.back.acquire()

    def finish(self) -> None:
        while not self.done:
            self.step()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        self._files.go.acquire()
        try:
            self._script(self._owner)
        except Fenced:
            pass
        except BaseException as error:  # noqa: BLE001 -- raised again where the schedule ends
            self.error = error
        self.done = True
        self._files.back.release()


def first_script(owner: Owner) -> None:
    """An owner that came before the others, and has recovered already."""
    owner.batch(30)
    owner.snapshot()
    owner.append(40)
    owner.snapshot()
    owner.batch(30).release()


def second_script(owner: Owner) -> None:
    owner.recover().batch(30)
    owner.snapshot()
    owner.batch(40).release()


def third_script(owner: Owner) -> None:
    owner.recover().answer().batch(50).batch(30)


def glance(owner: Owner) -> None:
    """An owner that answers what it found, and releases the folder."""
    owner.recover().answer().release()


def reader(owner: Owner) -> None:
    """A reader without an epoch."""
    for _ in range(2):
        answered = list(owner.history.answered)
        everything = None
        while everything is None:
            with contextlib.suppress(StorageError):
                everything = payloads_of(read_only(FOLDER, owner.files))
        if everything[: len(answered)] != answered:
            raise Lost("a reader did not find what had been answered before it looked")


@dataclass
class Interleavings:
    """Runs schedules, recovers after each, and counts."""

    chance: random.Random = field(default_factory=lambda: random.Random(1))
    images_at_most: int = 4
    schedules: int = 0
    images: int = 0

    def run(self, scripts: Sequence[Script], schedule: Schedule) -> list[int]:
        """Run owners by a schedule, and check what is found then; return how many steps each took."""
        disk, history = MemoryDisk(), History()
        create(history, disk)
        first_files = SteppedFiles(disk)
        every = [first_files, *(SteppedFiles(disk) for _ in scripts[1:])]
        owners = [
            Owner(history, files, epoch, snapshots_kept=1, segment_bytes_max=100)
            for epoch, files in enumerate(every, start=1)
        ]
        _unstepped(first_files, owners[0].recover)
        stepped = [Stepped(*parts) for parts in zip(owners, every, scripts, strict=True)]
        for index, count in schedule:
            for _ in range(count):
                stepped[index].step()
        for one in stepped:
            one.finish()
        self.schedules += 1
        for image in disk.images(self.images_at_most, self.chance):
            self.images += 1
            history.check(MemoryDisk(image))
        history.check(disk)
        return [one.steps for one in stepped]

    def lengths(self, scripts: Sequence[Script]) -> list[int]:
        """How many steps each owner takes if the owners run one after another."""
        return self.run(scripts, [(index, 1_000) for index in range(len(scripts))])


def switches(lengths: Sequence[int], count: int) -> Iterator[Schedule]:
    """Every schedule of two owners with this many switches between them, the first one running first."""
    for counts in itertools.product(*(range(1, lengths[turn % 2] + 1) for turn in range(count))):
        if sum(counts[::2]) <= lengths[0] and sum(counts[1::2]) <= lengths[1]:
            yield [(turn % 2, steps) for turn, steps in enumerate(counts)]


def drawn(lengths: Sequence[int], chance: random.Random) -> Schedule:
    """A random schedule: some stretches are short, some long."""
    schedule = []
    for _ in range(chance.randint(2, 12)):
        index = chance.randrange(len(lengths))
        schedule.append((index, chance.choice((1, 2, 3, chance.randint(1, lengths[index])))))
    return schedule


def _unstepped(files: SteppedFiles, work: Callable[[], object]) -> None:
    """Do something with stepped files in one go."""
    pause = files.pause
    files.pause = lambda: None  # type: ignore[method-assign]
    try:
        work()
    finally:
        files.pause = pause  # type: ignore[method-assign]
