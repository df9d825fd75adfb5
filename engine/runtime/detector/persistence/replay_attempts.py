"""Attempts to replay a journal, marked in its folder so that a fatal record does not kill every worker.

Each attempt marks its progress: it writes the number of the record that it is about to replay to the file
`replaying`, and removes the file on success. It writes the first number, and then one every `MARK_MS`,
because a write per record would be slow. So a process may have died at a later record than its mark says. The
next attempt writes every number from that mark on. If it dies as well, both deaths count at the record where
it died: the first attempt cannot have passed that record either.

A record at which several processes in a row died is not replayed for some time. A process that crashes by
itself (a segmentation fault, an abort) writes a crash report to the same file. Without a report, the process
was killed from outside, by an operator or the out-of-memory killer. A kill says less about the record, so
more kills than crashes are allowed.

The first attempt after a passivation, the usual case, is not marked: no process has died yet, and if this one
does, its claim in the folder makes the next attempt write marks. So a record may kill one process more than
the marks count.

Marks must survive the death of a process, not of the machine, so they are not synced.
"""

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from snapshots.errors import StorageError
from snapshots.files import Files, OpenFile, wall_clock_us, write_all
from snapshots.format.segment_reader import Record

CRASHES_MAX: Final = 2
"""A record is not replayed after this many consecutive crashes at it."""

KILLS_MAX: Final = 5
"""The same for processes that were killed from outside."""

LEFT_ALONE_S: Final = 600
"""How long the record is not replayed after the last attempt. Then the count starts again."""

MARK_MS: Final = 100
"""The interval of marks, as long as no process has died."""

_MAGIC: Final = b"RDMARK2\n"
_MARK: Final = struct.Struct("<QIIq")
"""The contents of a mark: a record's sequence, how many processes were killed and how many crashed there
before, and the time of the attempt."""
_CRASHED: Final = b"Fatal Python error: "


class Poisoned(StorageError):
    """A journal record cannot be replayed: it kills the process, or the replay diverges."""


@dataclass(frozen=True, slots=True)
class Deaths:
    """The consecutive deaths of processes at one record; all zero if there were none."""

    sequence: int = 0
    kills: int = 0
    crashes: int = 0
    at_us: int = 0
    """The time of the last attempt."""
    crash: str = ""
    """The crash report of the last process that crashed."""

    @property
    def too_many(self) -> bool:
        """Whether the record must not be replayed now."""
        return self.crashes >= CRASHES_MAX or self.kills >= KILLS_MAX

    @property
    def located(self) -> bool:
        """Whether they certainly happened at this record. A single death happened there or soon after."""
        return self.kills + self.crashes > 1

    def expired(self, now_us: int) -> bool:
        """Whether the last attempt is long enough ago to try again."""
        return abs(now_us - self.at_us) > LEFT_ALONE_S * 1_000_000

    def __str__(self) -> str:
        """Describe them: `2 processes crashed (Segmentation fault) at record 7`."""
        parts = []
        if self.crashes:
            parts.append(f"{_processes(self.crashes)} crashed{f' ({self.crash})' if self.crash else ''}")
        if self.kills:
            parts.append(f"{_processes(self.kills)} {'was' if self.kills == 1 else 'were'} killed")
        return f"{' and '.join(parts)} at record {self.sequence}{'' if self.located else ' or soon after'}"


@dataclass(eq=False)
class ReplayAttempt:
    """One attempt to replay a journal."""

    _folder: Path
    _files: Files
    now_us: Callable[[], int] = wall_clock_us
    crashes_to: Callable[[int | None], None] = lambda _: None
    """Directs crash reports of the process to an open file."""
    _marks: bool = False
    """Whether this attempt is marked."""
    _before: Deaths = field(default_factory=Deaths)
    _file: OpenFile | None = None
    _marked: Deaths = field(default_factory=Deaths)
    """The contents of the last mark."""

    @property
    def _path(self) -> Path:
        return self._folder / "replaying"

    def begin(self) -> None:
        """Read how previous attempts ended, and mark this one. Raises OSError."""
        self._marks = True
        deaths = last_deaths(self._path, self._files)
        self._before = Deaths() if deaths.expired(self.now_us()) else deaths

    def refuse(self, record: Record) -> None:
        """Raise Poisoned if processes died of the record that is about to be replayed."""
        before = self._before
        if before.too_many and record.sequence == before.sequence:
            raise Poisoned(
                f"{record.path} at {record.offset}: {before}, which is not replayed for {LEFT_ALONE_S} s; "
                f"`rule-detector retry --data {self._folder.parent.parent} "
                f"--detector {self._folder.name}` allows it at once"
            )

    def reached(self, record: Record) -> None:
        """Mark that a record is about to be replayed. Raises Poisoned if processes died of it."""
        if not self._marks:
            return
        self.refuse(record)
        before = self._before
        if before.too_many and record.sequence < before.sequence:
            # Keep the mark, with the time of the last attempt.
            return
        now_us = self.now_us()
        if before.sequence != record.sequence and (before.located or record.sequence < before.sequence):
            # No process is known to have died at this record.
            before = Deaths()
        marked = self._marked
        due = self._file is None or abs(now_us - marked.at_us) >= MARK_MS * 1_000
        # A mark with deaths is about one record, so the next record needs its own.
        if due or before != Deaths() or marked.kills or marked.crashes:
            self._mark(replace(before, sequence=record.sequence, at_us=now_us))

    def _mark(self, deaths: Deaths) -> None:
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._path)
            self._file = self._files.create(self._path)
            write_all(self._file, _MAGIC)
            self.crashes_to(self._file.descriptor())
        write_all(self._file, _MARK.pack(deaths.sequence, deaths.kills, deaths.crashes, deaths.at_us))
        self._marked = deaths

    def survived(self) -> None:
        """Remove the mark, because the process survived the attempt. Raises OSError.

        A mark that was the reason for refusing the attempt is kept.
        """
        if self._file is not None:
            self.crashes_to(None)
            self._file.close()
            self._file = None
            self._files.remove(self._path)


def last_deaths(path: Path, files: Files) -> Deaths:
    """Read the last consecutive deaths at the same record. Raises OSError."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return Deaths()
    if not data.startswith(_MAGIC):
        return Deaths()
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
    """Allow the next attempt to replay a refused record; return the forgotten deaths. Raises OSError."""
    path = folder / "replaying"
    deaths = last_deaths(path, files)
    with contextlib.suppress(FileNotFoundError):
        files.remove(path)
    return deaths


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"
