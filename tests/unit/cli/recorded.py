"""Recordings for the tests of how they are read."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording


class _Pieces(io.RawIOBase):
    """A pipe from which each read takes one piece."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        piece = next(self._pieces, b"")
        buffer[: len(piece)] = piece
        return len(piece)


def piped(pieces: Iterable[bytes]) -> io.BufferedReader:
    """Return a pipe on which each read gives one piece."""
    return io.BufferedReader(_Pieces(pieces))


def read(
    path: Path | str, time_field: str | None = None, pieces: Iterable[bytes] = (), **options: Any
) -> list[RecordedEvent]:
    """Read a file, or standard input for `-`, on which each read gives one of the pieces."""
    reading = ReadingOptions(time_field, **options)
    with Recording(str(path), piped(pieces), reading) as recording:
        return list(recording.events())


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
