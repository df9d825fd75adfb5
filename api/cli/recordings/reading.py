"""Reads recorded events, plain or gzipped, from files or standard input."""

import gzip
import io
import json
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Self, cast

from api.cli.recordings.columns import ColumnType
from api.cli.recordings.rows import (
    READ_BYTES,
    RecordingError,
    Row,
    csv_rows,
    json_rows,
    pattern_rows,
    reason_of,
)
from api.cli.recordings.times import NotATimeError, TimeParser, is_number, iso
from engine.patterns.named_groups import NamedGroups

TIME_FIELDS: Final = ("@timestamp", "timestamp", "timestamp_ms", "time", "ts")
"""The fields that may hold the time, unless one is named."""

_GZIP: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_PLAUSIBLE_FROM_US: Final = 315_532_800_000_000
"""The year 1980. A number that means an earlier time is probably a row number or a duration."""


class RecordedEvent(NamedTuple):
    """One event of a recording."""

    source: str
    """The file's path, or `standard input`."""
    line: int
    fields: dict[str, Any]
    time_us: int
    text: bytes | None = None
    """The fields as they stand in the recording, if that is JSON."""

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.source}, line {self.line}"

    @property
    def json(self) -> bytes:
        """The fields as a JSON object."""
        # The standard encoder, since msgspec writes no integers past 64 bits.
        return self.text or json.dumps(self.fields, ensure_ascii=False, allow_nan=False).encode()


_NAMES_SHOWN: Final = 8
_NAME_CHARS_SHOWN: Final = 60
_READ_AS_CSV: Final = ". It was read as CSV, whose first line names the columns; lines of text need --pattern"


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """Options for reading recordings."""

    time_field: str | None = None
    """The field with the time; None for the first of TIME_FIELDS in the first event."""
    needs_time: bool = True
    """Whether events need a time. If not, all have the time 0."""
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    """Types of CSV columns that override what their cells suggest."""
    tell: Callable[[str], None] = lambda _: None
    """Receives notes about how a recording is read."""
    accept_old: Callable[[str], bool] = lambda _: True
    """Receives a sentence about an implausibly early first time; returns whether that time is right."""
    time_format: str | None = None
    """How times are written, as `strptime` says it; None for the forms that `TimeParser` knows."""
    pattern: NamedGroups | None = None
    """A regular expression whose named groups are the fields of each line; None for NDJSON and CSV."""


class Recording:
    """An open recording; a context manager that closes it.

    Gzip is recognized by its first two bytes, CSV by the file's name or else by a first character other than
    a brace.
    """

    def __init__(self, path: str, standard_input: IO[bytes], reading: ReadingOptions | None = None) -> None:
        """Open a file, or take standard input for `-`. Raises RecordingError."""
        self._reading = reading or ReadingOptions()
        self.name = "standard input" if path == "-" else path
        self.size: int | None = None
        """Size of the file in bytes, as stored; None for a pipe."""
        self._is_guessed_csv = False
        self._owned = path != "-"
        self._source = _opened(path) if self._owned else cast("io.BufferedReader", standard_input)
        self._bytes = self._source
        try:
            if self._owned and Path(path).is_file():
                self.size = Path(path).stat().st_size
            if self._source.peek().startswith(_GZIP):
                self._bytes = io.BufferedReader(
                    cast("io.RawIOBase", gzip.GzipFile(fileobj=self._source)), READ_BYTES
                )
            if self._bytes.peek().startswith(_BYTE_ORDER_MARK):
                self._bytes.read(len(_BYTE_ORDER_MARK))
        except (OSError, EOFError, zlib.error) as error:
            self._source.close()
            raise RecordingError(f"{self.name}: {reason_of(error)}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            self._source.close()

    def position(self) -> int:
        """How many bytes of the file have been read; 0 for a pipe."""
        return 0 if self.size is None else self._source.tell()

    def events(self) -> Iterator[RecordedEvent]:
        """Yield the events in order. Raises RecordingError at the first line that is not an event."""
        time_field = self._reading.time_field
        first = True
        times = self._times()
        # The rows read the bytes, so they must be closed first.
        with closing(self._rows()) as rows:
            try:
                for line, fields, text in rows:
                    if not self._reading.needs_time:
                        yield RecordedEvent(self.name, line, fields, 0, text)
                        continue
                    try:
                        time_field = time_field or _time_field_of(fields)
                        value = _looked_up(fields, time_field)
                        time_us = times.microseconds_of(value, time_field)
                    except NotATimeError as error:
                        raise RecordingError(f"{self.name}, line {line}: {error}") from None
                    if first and is_number(value):
                        self._check_plausible(time_us, f"{self.name}, line {line}: `{time_field}` is {value}")
                    first = False
                    yield RecordedEvent(self.name, line, fields, time_us, text)
            except RecordingError as error:
                if first and self._is_guessed_csv:
                    raise RecordingError(f"{error}{_READ_AS_CSV}") from None
                raise
            except (OSError, EOFError, zlib.error) as error:
                raise RecordingError(f"{self.name}: {reason_of(error)}") from None

    def _check_plausible(self, time_us: int, said: str) -> None:
        if 0 <= time_us < _PLAUSIBLE_FROM_US:
            said += f", which as a time is {iso(time_us)}"
            if not self._reading.accept_old(said):
                raise RecordingError(f"{said}; is it a row number? Name the time field with --time-field")

    def _is_csv(self) -> bool:
        name = self.name.lower().removesuffix(".gz")
        if name.endswith((".csv", ".ndjson", ".jsonl", ".json")):
            return name.endswith(".csv")
        self._is_guessed_csv = self._bytes.peek().lstrip()[:1] not in (b"", b"{", b"[")
        return self._is_guessed_csv

    def _rows(self) -> Generator[Row, None, None]:
        reading = self._reading
        if reading.pattern is not None:
            return pattern_rows(self._bytes, self.name, reading.pattern, reading.types, reading.tell)
        if self._is_csv():
            return csv_rows(self._bytes, self.name, reading.types, reading.tell)
        return json_rows(self._bytes, self.name)

    def _times(self) -> TimeParser:
        """Return the parser of times. A time without a year is at most as late as the file, or as now."""
        written_s = Path(self.name).stat().st_mtime if self.size is not None else time.time()
        return TimeParser(self._reading.time_format, latest_us=int(written_s * 1_000_000))


def _opened(path: str) -> io.BufferedReader:
    try:
        return cast("io.BufferedReader", Path(path).open("rb", READ_BYTES))
    except OSError as error:
        raise RecordingError(f"{path}: {reason_of(error)}") from None


def _time_field_of(fields: Mapping[str, object]) -> str:
    for name in TIME_FIELDS:
        if name in fields:
            return name
    shown = ", ".join(name[:_NAME_CHARS_SHOWN] for name in list(fields)[:_NAMES_SHOWN])
    there = f" (it has {shown}{', …' if len(fields) > _NAMES_SHOWN else ''})" if shown else ""
    raise NotATimeError(
        f"the event has none of {', '.join(TIME_FIELDS)}{there}; name the time field with --time-field"
    )


def _looked_up(fields: Mapping[str, object], time_field: str) -> object:
    value: object = fields.get(time_field)
    if value is None:
        # As in conditions: the whole name first, then its parts between the dots.
        value = fields
        for part in time_field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise NotATimeError(f"the event has no field `{time_field}` for its time")
    return value
