"""What was answered, what may be found, and whether a folder has that. The model is a list of payloads."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from snapshots.errors import Fenced, NoRoom, StorageError
from snapshots.files import Files
from snapshots.folders import create_folder
from snapshots.store import Store
from snapshots.takeover.recovered import Recovered

FOLDER = Path("/folder")
LAST_EPOCH = 10**9


class Lost(AssertionError):
    """Something that was answered is missing, or something that never happened is there."""


def body(payloads: Iterable[bytes]) -> bytes:
    """A snapshot's body: every payload so far."""
    return b"".join(len(one).to_bytes(4, "big") + one for one in payloads)


def payloads_of(found: Recovered) -> list[bytes]:
    """Everything that a recovery returned, from the first record on."""
    everything: list[bytes] = []
    data = found.snapshot.body if found.snapshot else b""
    while data:
        length = int.from_bytes(data[:4], "big")
        everything.append(data[4 : 4 + length])
        data = data[4 + length :]
    for record in found.records:
        if record.sequence != len(everything) + 1:
            raise Lost(f"record {record.sequence} came after {len(everything)}")
        everything.append(record.payload)
    return everything


@dataclass
class History:
    """Everything that owners did with one folder, as their callers see it."""

    born: bool = False
    answered: list[bytes] = field(default_factory=list)
    views: list[list[bytes]] = field(default_factory=list)
    """What each owner found and appended, in order."""
    tolerant: bool = False
    """Whether faults are put into the runs, so that an owner may end before it is done."""

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Everything that one owner does, or as much as the disk permits."""
        try:
            yield
        except StorageError:
            if not self.tolerant:
                raise

    def answer(self, view: list[bytes]) -> None:
        """An owner answers everything that it has."""
        shorter = min(len(view), len(self.answered))
        if view[:shorter] != self.answered[:shorter]:
            raise Lost(f"an owner answered {_told(view)}, and answered were {_told(self.answered)}")
        if len(view) > shorter:
            self.answered = list(view)

    def check(self, files: Files, *, epoch: int = LAST_EPOCH) -> list[bytes]:
        """Recover; raise Lost unless that returns what was answered, perhaps followed by what was begun."""
        try:
            everything = payloads_of(Store(FOLDER, epoch=epoch, files=files).recover())
        except StorageError as error:
            if self.born:
                raise Lost(f"it refuses: {error}") from error
            return []
        self.judge(everything)
        return everything

    def judge(self, everything: list[bytes]) -> None:
        """Raise Lost unless this history may be found now."""
        if everything[: len(self.answered)] != self.answered:
            raise Lost(f"answered were {_told(self.answered)}, found were {_told(everything)}")
        if everything and not any(view[: len(everything)] == everything for view in self.views):
            raise Lost(f"found were {_told(everything)}, which no owner ever had")


class Owner:
    """One owner of the folder, which does everything in the right order and records what it answers."""

    def __init__(self, history: History, files: Files, epoch: int, **settings: int) -> None:
        self.history = history
        self.files = files
        self.store = Store(FOLDER, epoch=epoch, files=files, **settings)
        self.view: list[bytes] = []
        self.pause: Callable[[], None] = getattr(files, "pause", lambda: None)
        """Lets others run between the last check and the answer."""
        self._count = 0
        self._recovered = False

    def recover(self) -> "Owner":
        found = self.store.recover()
        self._recovered = True
        self.view = payloads_of(found)
        self.history.views.append(self.view)
        return self

    def append(self, *sizes: int) -> "Owner":
        for size in sizes:
            self._count += 1
            payload = b"%d.%d " % (self.store.epoch or 0, self._count)
            payload += bytes(65 + (position + self._count) % 26 for position in range(size - len(payload)))
            try:
                self.store.reserve(len(payload))
            except NoRoom:
                if not self.history.tolerant:
                    raise
                continue
            # Before the write, because a failed write may have been almost whole.
            self.view.append(payload)
            self.store.append(payload, version=1)
        return self

    def answer(self) -> "Owner":
        """Sync, check the owner, answer."""
        self.store.sync()
        self.store.check_owner()
        self.pause()
        self.history.answer(self.view)
        return self

    def batch(self, *sizes: int) -> "Owner":
        return self.append(*sizes).answer()

    def snapshot_to_release(self) -> "Owner":
        """Save like an owner that then releases its folder."""
        return self.snapshot(goes_on=False)

    def snapshot(self, *, goes_on: bool = True) -> "Owner":
        try:
            sequence = self.store.begin_snapshot(goes_on=goes_on)
            data = body(self.view)
            self.store.save([data[: len(data) // 2], data[len(data) // 2 :]], version=1, sequence=sequence)
        except StorageError:
            # An owner continues without a snapshot as long as its journal works.
            if not self.history.tolerant or self.store.broken:
                raise
        return self

    def release(self) -> "Owner":
        """End like an owner that is no longer needed."""
        self.store.release()
        return self

    def try_batch(self, *sizes: int) -> bool:
        """Append and answer; return whether that was possible. A fenced owner cannot."""
        if not self._recovered:
            return False
        try:
            self.batch(*sizes)
        except Fenced:
            return False
        except StorageError:
            if not self.history.tolerant:
                raise
            return False
        return True


def create(history: History, files: Files) -> None:
    """Create the folder."""
    create_folder(FOLDER, body([]), version=1, files=files)
    history.born = True


def _told(payloads: list[bytes]) -> list[bytes]:
    return [payload[:8] for payload in payloads]
