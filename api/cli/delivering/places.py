"""The places up to which feeds are delivered, and the file that keeps them."""

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from snapshots.files import FILE_MODE, RealFiles, write_all

_VERSION: Final = 1


class PlacesError(Exception):
    """A file of places is in use, or is none. The message names it."""


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """What the file has: the last `seq` that was delivered, by the id of the detector."""

    version: int
    every: bool
    """Whether one that is not among them is new: all are followed, and those of the start have places."""
    places: dict[str, int]


class Places:
    """The places of all feeds. With a file, they outlive the process, which keeps others from the file.

    The file never knows of a firing that is not safe: `sync` is called before each save.
    """

    def __init__(self, path: Path | None, sync: Callable[[], None], *, every: bool) -> None:
        """Lock the file and read it. Raises PlacesError, OSError."""
        self._path = path and path.resolve()
        self._sync = sync
        self._every = every
        self._changed = asyncio.Event()
        self._saving = threading.Lock()
        self._is_closed = False
        self._lock = self._locked(self._path) if self._path else None
        document = self._read(self._path) if self._path else None
        self._places = document.places if document else {}
        self.is_complete = document is not None and document.every and every
        """Whether a detector without a place is new since the file was written."""

    def complete(self) -> None:
        """Take note that all detectors that are there have a place, so that others are new."""
        self.is_complete = self._every

    def of(self, detector_id: str) -> int | None:
        """Return the last `seq` of a detector that was delivered; None for one that is not known."""
        return self._places.get(detector_id)

    def move(self, detector_id: str, seq: int) -> None:
        """Set the place of a detector; it is saved soon."""
        self._places[detector_id] = seq
        self._changed.set()

    def forget(self, detector_id: str) -> None:
        """Forget a detector that was deleted."""
        self._places.pop(detector_id, None)
        self._changed.set()

    async def keep(self) -> None:
        """Save what changes, until cancelled. Raises OSError."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.to_thread(self.save)

    def save(self) -> None:
        """Save everything now, unless it is closed. Raises OSError."""
        with self._saving:
            if self._is_closed:
                return
            document = msgspec.json.encode(_Document(_VERSION, self.is_complete, self._places))
            self._sync()
            if self._path is not None:
                self._replace(self._path, document)

    def close(self) -> None:
        """Save everything, and let others have the file. Raises OSError."""
        try:
            self.save()
        finally:
            # `keep` may have left a save in its thread: it ends before others have the file, or does nothing.
            with self._saving:
                self._is_closed = True
            if self._lock is not None:
                os.close(self._lock)

    @staticmethod
    def _replace(path: Path, document: bytes) -> None:
        files, beside = RealFiles(), path.with_name(f"{path.name}.new")
        with suppress(FileNotFoundError):
            files.remove(beside)
        file = files.create(beside)
        try:
            write_all(file, document)
            file.sync()
        finally:
            file.close()
        files.rename(beside, path)
        files.sync_folder(path.parent)

    @staticmethod
    def _locked(path: Path) -> int:
        """Return the descriptor of the lock; the file itself is replaced with each save."""
        beside = path.with_name(f"{path.name}.lock")
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise PlacesError(f"{path}: another process delivers with this file") from None
        return lock

    @staticmethod
    def _read(path: Path) -> _Document | None:
        try:
            document = msgspec.json.decode(path.read_bytes(), type=_Document)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, RecursionError) as error:
            raise PlacesError(
                f"{path}: it is damaged, or no file of `deliver`: {error}; "
                "without it, every feed begins at the newest"
            ) from None
        if document.version != _VERSION:
            raise PlacesError(f"{path}: only a newer version of this program can read it")
        return document
