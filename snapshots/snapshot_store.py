"""The snapshots of one folder: saved in one step, kept a few deep, the newest valid one found again."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from snapshots.damage import Damage
from snapshots.errors import Damaged, Fenced, NewerFormat, NothingUsable, StorageError
from snapshots.files import Files, RealFiles, write_all
from snapshots.framing import Migration
from snapshots.records import MIGRATIONS, Snapshot, decode, encode

_NAME: Final = re.compile(r"snapshot-([0-9]{20})\.rds")
_UNFINISHED: Final = ".unfinished"
_DAMAGED: Final = re.compile(r"\.rds\.damaged(-[0-9]+)?$")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a folder held. `damage` is what was set aside on the way, now."""

    snapshot: Snapshot | None
    damage: tuple[Damage, ...] = ()


@dataclass(slots=True)
class SnapshotStore:
    """The snapshots of one folder, as one owner with one epoch sees them.

    `load` comes first: it finds where the sequence stands, and where no epoch was given takes the next one
    after that of the newest snapshot. Not for several threads.
    """

    folder: Path
    epoch: int | None = None
    kept: int = 3
    files: Files = field(default_factory=RealFiles)
    migrations: Mapping[int, Migration] = field(default_factory=lambda: MIGRATIONS)
    _sequence: int | None = field(default=None, init=False)

    def load(self) -> Loaded:
        """Give the newest valid snapshot, and None where there never was one.

        Damaged ones that are newer are set aside under another name and reported. Raises NothingUsable where
        all are damaged, NewerFormat where the newest is of a format that this program does not know, and
        Fenced where it is by a later owner.
        """
        try:
            return self._load()
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be read: {error}") from error

    def save(self, body: bytes, *, version: int) -> int:
        """Make `body` the newest snapshot, durably, and give its size in bytes.

        Raises Fenced where a later owner has been here, and StorageError where the disk refuses; the
        snapshots that were there are then as usable as before, and another attempt may be made.
        """
        assert self._sequence is not None, "a store is loaded before it is saved to"
        try:
            return self._save(body, version)
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be written: {error}") from error

    def destroy(self) -> None:
        """Remove the folder and all that is in it. May be repeated where it failed half-way."""
        try:
            for name in self.files.names(self.folder):
                self.files.remove(self.folder / name)
            with contextlib.suppress(FileNotFoundError):
                self.files.remove_folder(self.folder)
                self.files.sync_folder(self.folder.parent)
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be removed: {error}") from error

    def _load(self) -> Loaded:
        names = self.files.names(self.folder)
        for name in names:
            # An owner before this one died while it wrote; the file was never anyone's snapshot.
            if name.endswith(_UNFINISHED):
                self.files.remove(self.folder / name)
        damage: list[Damage] = []
        numbered = self._numbered(names)
        # Numbers are not used again, not even those of damaged files.
        self._sequence = max(numbered, default=0)
        for sequence in sorted(numbered, reverse=True):
            path = self.folder / numbered[sequence]
            try:
                snapshot = self._read(path, sequence)
            except Damaged as error:
                damage.append(Damage(self._set_aside(path, names), str(error)))
                continue
            except NewerFormat as error:
                raise NewerFormat(f"{path} cannot be used: {error}") from error
            if self.epoch is None:
                self.epoch = snapshot.epoch + 1
            if snapshot.epoch > self.epoch:
                raise Fenced(f"{path} is by epoch {snapshot.epoch}, later than {self.epoch}")
            return Loaded(snapshot, tuple(damage))
        if damage or any(_DAMAGED.search(name) for name in names):
            told = "; ".join(map(str, damage)) or "all were set aside before"
            raise NothingUsable(f"{self.folder} holds no snapshot that can be used: {told}")
        if self.epoch is None:
            self.epoch = 1
        return Loaded(None)

    def _read(self, path: Path, sequence: int) -> Snapshot:
        snapshot = decode(self.files.read(path), self.migrations)
        if snapshot.sequence != sequence:
            raise Damaged(f"it says that it is number {snapshot.sequence}")
        return snapshot

    def _save(self, body: bytes, version: int) -> int:
        assert self._sequence is not None
        assert self.epoch is not None
        self.files.make_folder(self.folder)
        names = self.files.names(self.folder)
        numbered = self._numbered(names)
        newest = max(numbered, default=0)
        if newest > self._sequence:
            self._check_not_fenced(self.folder / numbered[newest], newest)
            self._sequence = newest
        # A number that was tried is spent: its file may be there in part, or be there and not be known to be.
        self._sequence += 1
        snapshot = Snapshot(self.epoch, self._sequence, version, body)
        data = encode(snapshot)
        path = self.folder / _name(self._sequence)
        unfinished = path.with_name(f"{path.name}.{self.epoch}{_UNFINISHED}")
        self._write(unfinished, data)
        self.files.rename(unfinished, path)
        self.files.sync_folder(self.folder)
        self._trim(numbered)
        return len(data)

    def _check_not_fenced(self, path: Path, sequence: int) -> None:
        """Look at a snapshot by someone else: a later owner's fences this one off, an earlier's is late."""
        assert self.epoch is not None
        try:
            epoch = self._read(path, sequence).epoch
        except Damaged:
            return
        if epoch > self.epoch:
            raise Fenced(f"{path} is by epoch {epoch}, later than {self.epoch}")

    def _write(self, path: Path, data: bytes) -> None:
        file = self.files.create(path)
        try:
            try:
                write_all(file, data)
                file.sync()
            finally:
                file.close()
        except OSError:
            with contextlib.suppress(OSError):
                self.files.remove(path)
            raise

    def _trim(self, numbered: Mapping[int, str]) -> None:
        """Remove all but the newest. One that stays costs room, not safety, and the next save tries again."""
        older = sorted(numbered, reverse=True)[self.kept - 1 :]
        with contextlib.suppress(OSError):
            for sequence in older:
                self.files.remove(self.folder / numbered[sequence])

    def _set_aside(self, path: Path, names: list[str]) -> Path:
        """Give a damaged file another name, and give that. It is never removed."""
        aside, attempt = path.with_name(f"{path.name}.damaged"), 1
        while aside.name in names:
            attempt += 1
            aside = path.with_name(f"{path.name}.damaged-{attempt}")
        self.files.rename(path, aside)
        self.files.sync_folder(self.folder)
        return aside

    @staticmethod
    def _numbered(names: list[str]) -> dict[int, str]:
        return {int(found[1]): name for name in names if (found := _NAME.fullmatch(name))}


def _name(sequence: int) -> str:
    return f"snapshot-{sequence:020d}.rds"
