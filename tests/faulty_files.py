"""Files whose calls fail, write only half, or are the last ones of a process."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from snapshots.files import Files, OpenFile, RealFiles


class Died(BaseException):
    """The process was killed: none of its code runs any more, although its `finally` clauses do here."""


class FaultyFiles:
    """Files, real ones if no others are given, until the call with the number `fails_at`, counted from 0.

    That one fails, and with `for_good` so do all after it. A write that fails has written half of what it was
    given, as a full disk lets it. With `short` nothing fails, and writes from there on take only half of what
    they are given. With `dies` the process dies there: the call raises Died, a write having written half, and
    none after it does anything.
    """

    def __init__(
        self,
        fails_at: int | None = None,
        error: int = errno.EIO,
        *,
        for_good: bool = False,
        short: bool = False,
        dies: bool = False,
        files: Files | None = None,
    ) -> None:
        self.fails_at = fails_at
        self.error = error
        self.for_good = for_good
        self.failing: frozenset[str] | None = None
        """The calls of which the next one fails, or all of them from now on."""
        self.short = short
        self.dies = dies
        self.calls: list[str] = []
        self.failed = 0
        self._files = files or RealFiles()

    def fail_next(self, *calls: str) -> None:
        """Make the next call with one of these names fail."""
        self.fails_at, self.failing, self.failed = len(self.calls), frozenset(calls), 0

    def names(self, folder: Path) -> list[str]:
        self._may_fail("names")
        return self._files.names(folder)

    def read(self, path: Path) -> bytes:
        self._may_fail("read")
        return self._files.read(path)

    def read_start(self, path: Path, bytes_: int) -> bytes:
        self._may_fail("read_start")
        return self._files.read_start(path, bytes_)

    def changed_us(self, path: Path) -> int:
        return self._files.changed_us(path)

    def create(self, path: Path) -> OpenFile:
        self._may_fail("create")
        return _FaultyFile(self, self._files.create(path))

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        self._may_fail("write_again", lambda: self._files.write_again(path, offset, data[: len(data) // 2]))
        self._files.write_again(path, offset, data)

    def rename(self, old: Path, new: Path) -> None:
        self._may_fail("rename")
        self._files.rename(old, new)

    def remove(self, path: Path) -> None:
        self._may_fail("remove")
        self._files.remove(path)

    def make_folder(self, folder: Path) -> None:
        self._may_fail("make_folder")
        self._files.make_folder(folder)

    def add_folder(self, folder: Path) -> None:
        self._may_fail("add_folder")
        self._files.add_folder(folder)

    def remove_folder(self, folder: Path) -> None:
        self._may_fail("remove_folder")
        self._files.remove_folder(folder)

    def sync_folder(self, folder: Path) -> None:
        self._may_fail("sync_folder")
        self._files.sync_folder(folder)

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        raised: OSError | None = None
        for call in calls:
            try:
                call()
            except OSError as error:
                raised = error
        if raised is not None:
            raise raised

    def _may_fail(self, what: str, first: Callable[[], object] = lambda: None) -> None:
        number = len(self.calls)
        self.calls.append(what)
        if self.fails_at is None or number < self.fails_at:
            return
        if self.failing is not None:
            if what not in self.failing or (self.failed and not self.for_good):
                return
            self.failed += 1
            first()
            raise OSError(self.error, os.strerror(self.error))
        if self.dies:
            self.failed += 1
            if number == self.fails_at:
                first()
            raise Died
        if (number == self.fails_at or self.for_good) and not self.short:
            self.failed += 1
            first()
            raise OSError(self.error, os.strerror(self.error))

    def _taken(self, data: bytes) -> bytes:
        """Return how much of `data` a write takes."""
        number = len(self.calls) - 1
        if self.short and self.fails_at is not None and number >= self.fails_at:
            self.failed += 1
            return bytes(data[: max(1, len(data) // 2)])
        return data


class _FaultyFile:
    def __init__(self, files: FaultyFiles, file: OpenFile) -> None:
        self._files = files
        self._file = file

    def write(self, data: bytes) -> int:
        self._files._may_fail("write", lambda: self._file.write(data[: len(data) // 2]))
        return self._file.write(self._files._taken(data))

    def write_start(self, data: bytes) -> None:
        self._files._may_fail("write_start", lambda: self._file.write_start(data[: len(data) // 2]))
        self._file.write_start(data)

    def reserve(self, begin: int, bytes_: int) -> None:
        self._files._may_fail("reserve")
        self._file.reserve(begin, bytes_)

    def release(self, end: int) -> None:
        self._files._may_fail("release")
        self._file.release(end)

    def sync(self) -> None:
        self._files._may_fail("sync")
        self._file.sync()

    def sync_data(self) -> None:
        # A disk in memory knows what a failed sync leaves behind.
        self._files._may_fail("sync_data", getattr(self._file, "forget", lambda: None))
        self._file.sync_data()

    def is_named(self, path: Path) -> bool:
        self._files._may_fail("is_named")
        return self._file.is_named(path)

    def descriptor(self) -> int | None:
        return self._file.descriptor()

    def close(self) -> None:
        # As in the real call, the descriptor is closed in any case.
        self._files._may_fail("close", self._file.close)
        self._file.close()
