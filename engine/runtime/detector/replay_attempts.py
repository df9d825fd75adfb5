"""Attempts to replay a journal, marked in the folder for the case that one is the last thing a process does.

A record that ends whoever replays it would end one process after another. So each attempt writes down which
record it has come to, in the file `replaying`, which goes when the attempt succeeds. A record at which
processes ended again and again is left alone for some time. A process that crashes by itself (a segmentation
fault, an abort) says so in the same file as it ends. One that says nothing there was killed from outside, by
an operator or for want of memory; that tells less of the record, so it is borne more often.

The mark is there for the end of processes, not of machines: it is not synced.
"""

import contextlib
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from snapshots.errors import StorageError
from snapshots.files import Files, OpenFile, write_all
from snapshots.format.segment_reader import Record

CRASHES_MAX: Final = 2
"""So many crashes in a row at one record, and it is left alone."""

KILLS_MAX: Final = 5
"""The same for processes that were killed from outside."""

LEFT_ALONE_S: Final = 600
"""For how long after the last attempt; then it is tried as if it were the first time."""

_MAGIC: Final = b"RDMARK2\n"
_MARK: Final = struct.Struct("<QIIq")
"""A record's sequence, how many processes were killed there and how many crashed there before, and the time
of the attempt."""
_EARLIER_MARK: Final = struct.Struct("<QQ")
"""Without the magic: a record's sequence, and how many attempts had come to it, this one included."""
_CRASHED: Final = b"Fatal Python error: "


class Poisoned(StorageError):
    """A record of the journal cannot be replayed: whoever tries dies, or ends up elsewhere."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """What became of attempts in a row that came to a record and no further. Of no record: of none."""

    sequence: int = 0
    kills: int = 0
    crashes: int = 0
    at_us: int = 0
    """The time of the last attempt."""
    crash: str = ""
    """What the last process that crashed wrote about it."""

    @property
    def too_many(self) -> bool:
        """Whether the record is to be left alone."""
        return self.crashes >= CRASHES_MAX or self.kills >= KILLS_MAX

    def expired(self, now_us: int) -> bool:
        """Whether they are too long ago to keep the record from being tried."""
        return abs(now_us - self.at_us) > LEFT_ALONE_S * 1_000_000

    def __str__(self) -> str:
        """Tell them: `2 processes crashed at record 7 (Segmentation fault)`."""
        told = []
        if self.crashes:
            told.append(f"{_processes(self.crashes)} crashed{f' ({self.crash})' if self.crash else ''}")
        if self.kills:
            told.append(f"{_processes(self.kills)} {'was' if self.kills == 1 else 'were'} killed")
        return f"{' and '.join(told)} at record {self.sequence}"


class ReplayAttempt:
    """One attempt to replay a journal. `crashes_to` has a crash of the process described in an open file."""

    def __init__(
        self,
        folder: Path,
        files: Files,
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
        crashes_to: Callable[[int | None], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._path = folder / "replaying"
        self._files = files
        self._now_us = now_us
        self._crashes_to = crashes_to
        self._before = Deaths()
        self._file: OpenFile | None = None

    def begin(self) -> None:
        """Find out how the attempts before this one ended. Raises OSError."""
        deaths = last_deaths(self._path, self._files)
        self._before = Deaths() if deaths.expired(self._now_us()) else deaths

    def refuse(self, record: Record) -> None:
        """Raise Poisoned where a record that is about to be replayed was the end of others."""
        before = self._before
        if before.too_many and record.sequence == before.sequence:
            raise Poisoned(
                f"{record.path} at {record.offset}: {before}, which is not replayed for {LEFT_ALONE_S} s; "
                f"`rule-detector retry --data {self._folder.parent.parent} "
                f"--detector {self._folder.name}` has it tried at once"
            )

    def reached(self, record: Record) -> None:
        """Mark that a record is about to be replayed. Raises Poisoned where that was the end of others."""
        self.refuse(record)
        before = self._before
        if before.too_many and record.sequence < before.sequence:
            # The mark stays as it is, with the time of the last attempt.
            return
        if before.sequence != record.sequence:
            before = Deaths(record.sequence)
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._path)
            self._file = self._files.create(self._path)
            write_all(self._file, _MAGIC)
            self._crashes_to(self._file.descriptor())
        write_all(self._file, _MARK.pack(before.sequence, before.kills, before.crashes, self._now_us()))

    def survived(self) -> None:
        """Take the mark away: whatever came of the attempt, nobody died of it. Raises OSError.

        One that is the reason why no attempt was made stays.
        """
        if self._file is not None:
            self._crashes_to(None)
            self._file.close()
            self._file = None
            self._files.remove(self._path)


def last_deaths(path: Path, files: Files) -> Deaths:
    """Give how the last attempts in a row ended that came to the same record. Raises OSError."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return Deaths()
    if not data.startswith(_MAGIC):
        return _earlier(data)
    marks, crashed, text = data[len(_MAGIC) :].partition(_CRASHED)
    whole = len(marks) // _MARK.size * _MARK.size
    if not whole:
        return Deaths()
    sequence, kills, crashes, at_us = _MARK.unpack_from(marks, whole - _MARK.size)
    deaths = Deaths(sequence, kills, crashes, at_us)
    if crashed:
        reason = text.split(b"\n", 1)[0].decode(errors="replace").strip()
        return replace(deaths, crashes=crashes + 1, crash=reason)
    return replace(deaths, kills=kills + 1)


def retry(folder: Path, files: Files) -> Deaths:
    """Have a record be replayed at the next attempt, however many ended there; gives them. Raises OSError."""
    path = folder / "replaying"
    deaths = last_deaths(path, files)
    with contextlib.suppress(FileNotFoundError):
        files.remove(path)
    return deaths


def _earlier(data: bytes) -> Deaths:
    """Read a mark of before causes and times were told."""
    whole = len(data) // _EARLIER_MARK.size * _EARLIER_MARK.size
    if not whole:
        return Deaths()
    sequence, attempts = _EARLIER_MARK.unpack_from(data, whole - _EARLIER_MARK.size)
    return Deaths(sequence, kills=attempts)


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"
