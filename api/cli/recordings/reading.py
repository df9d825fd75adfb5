"""Reads recorded events: NDJSON or CSV, plain or gzipped, from files or standard input."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self, cast

import msgspec

from api.cli.recordings.columns import CellError, ColumnType, decide, value_of
from api.cli.recordings.times import NotATimeError, is_number, iso, microseconds_of

TIME_FIELDS: Final = ("@timestamp", "timestamp", "timestamp_ms", "time", "ts")
"""The fields that may hold the time, unless one is named."""

_GZIP: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
READ_BYTES: Final = 1024 * 1024
"""How much is read at once. The first read of a CSV file decides the types of its columns."""
_PLAUSIBLE_FROM_US: Final = 315_532_800_000_000
"""The year 1980. A number that means an earlier time is probably a row number or a duration."""


class RecordingError(Exception):
    """A recording cannot be read, or read further; the message names file and line."""


_Row = tuple[int, dict[str, object], bytes]
"""Line number, fields, and the fields as a JSON object."""


class RecordedEvent(NamedTuple):
    """One event of a recording."""

    place: str
    """File and line, for messages."""
    fields: bytes
    """The event's fields as a JSON object."""
    time_us: int


def _say_nothing(_: str) -> None:
    """The default of `Reading.tell`."""


def _believe(_: str) -> bool:
    """The default of `Reading.accept_old`."""
    return True


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading recordings."""

    time_field: str | None = None
    """The field with the time; None for the first of TIME_FIELDS in the first event."""
    needs_time: bool = True
    """Whether events need a time. If not, all have the time 0."""
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    """Types of CSV columns that override what their cells suggest."""
    tell: Callable[[str], None] = _say_nothing
    """Receives notes about how a recording is read."""
    accept_old: Callable[[str], bool] = _believe
    """Decides, given a sentence about it, whether an implausibly early first time is right."""


class Recording:
    """An open recording; a context manager that closes it.

    Gzip is recognized by its first two bytes, CSV by the file's name or else by a first character other than
    a brace.
    """

    def __init__(self, path: str, standard_input: IO[bytes], reading: Reading | None = None) -> None:
        """Open a file, or take standard input for `-`. Raises RecordingError."""
        self._reading = reading or Reading()
        self.name = "standard input" if path == "-" else path
        self.size: int | None = None
        """Size of the file in bytes, as stored; None for a pipe."""
        self._owned = path != "-"
        self._source = _opened(path) if self._owned else cast("io.BufferedReader", standard_input)
        self._bytes = self._source
        try:
            if self._owned and Path(path).is_file():
                self.size = Path(path).stat().st_size
            if self._source.peek(2)[:2] == _GZIP:
                self._bytes = io.BufferedReader(
                    cast("io.RawIOBase", gzip.GzipFile(fileobj=self._source)), READ_BYTES
                )
            if self._bytes.peek(3).startswith(_BYTE_ORDER_MARK):
                self._bytes.read(len(_BYTE_ORDER_MARK))
        except (OSError, EOFError) as error:
            self._source.close()
            raise RecordingError(f"{self.name}: {_reason(error)}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owned:
            self._source.close()

    def position(self) -> int:
        """Bytes of the file read so far; 0 for a pipe."""
        return 0 if self.size is None else self._source.tell()

    def events(self) -> Iterator[RecordedEvent]:
        """Give the events in order. Raises RecordingError at the first line that is not an event."""
        time_field = self._reading.time_field
        first = True
        # Closed now: the rows refer to the bytes, which must be closed after them.
        with closing(self._csv_rows() if self._is_csv() else self._json_rows()) as rows:
            try:
                for line, event, fields in rows:
                    place = f"{self.name}, line {line}"
                    if not self._reading.needs_time:
                        yield RecordedEvent(place, fields, 0)
                        continue
                    time_field = time_field or _time_field_of(event, place)
                    value = _looked_up(event, time_field, place)
                    time_us = _time_of(value, time_field, place)
                    if first and is_number(value):
                        self._check_plausible(time_us, f"{place}: `{time_field}` is {value}")
                    first = False
                    yield RecordedEvent(place, fields, time_us)
            except (OSError, EOFError) as error:
                raise RecordingError(f"{self.name}: {_reason(error)}") from None

    def _check_plausible(self, time_us: int, said: str) -> None:
        if 0 <= time_us < _PLAUSIBLE_FROM_US:
            said += f", which as a time is {iso(time_us)}"
            if not self._reading.accept_old(said):
                raise RecordingError(f"{said}; is it a row number? Name the time field with --time-field")

    def _is_csv(self) -> bool:
        name = self.name.lower().removesuffix(".gz")
        if name.endswith((".csv", ".ndjson", ".jsonl", ".json")):
            return name.endswith(".csv")
        start = self._bytes.peek(64).lstrip()
        return bool(start) and start[:1] not in (b"{", b"[")

    def _json_rows(self) -> Generator[_Row, None, None]:
        for number, raw in enumerate(self._bytes, 1):
            text = raw.strip()
            if not text:
                continue
            place = f"{self.name}, line {number}"
            try:
                event = msgspec.json.decode(text)
            except (ValueError, RecursionError) as error:
                raise RecordingError(f"{place}: not JSON: {_reason(error)}") from None
            if not isinstance(event, dict):
                raise RecordingError(f"{place}: expected one JSON object a line")
            yield number, event, text

    def _csv_rows(self) -> Generator[_Row, None, None]:
        # The sample is what one read returns; a pipe may take long to deliver more.
        sample_rows = max(1, self._bytes.peek(1).count(b"\n") - 1)
        text = io.TextIOWrapper(self._bytes, encoding="utf-8", newline="")
        reader = csv.reader(text, strict=True)
        try:
            rows = ((reader.line_num, cells) for cells in reader if cells)
            first = next(rows, None)
            if first is None:
                return
            header = _header(first[1], f"{self.name}, line {first[0]}")
            sample = list(islice(rows, sample_rows))
            types = self._column_types(header, sample)
            for line, cells in chain(sample, rows):
                place = f"{self.name}, line {line}"
                _check_count(cells, header, place)
                event = _event_of(cells, header, types, place)
                # The standard encoder, since msgspec writes no integers past 64 bits.
                yield line, event, json.dumps(event, ensure_ascii=False).encode()
        except (csv.Error, UnicodeDecodeError) as error:
            raise RecordingError(f"{self.name}, line {reader.line_num}: not CSV: {_reason(error)}") from None
        finally:
            # Whoever opened the bytes closes them.
            text.detach()

    def _column_types(self, header: list[str], sample: list[tuple[int, list[str]]]) -> dict[str, ColumnType]:
        unknown = [name for name in self._reading.types if name not in header]
        if unknown:
            raise RecordingError(
                f"{self.name}: --types names the column `{unknown[0]}`; there are {', '.join(header)}"
            )
        whole = [cells for _, cells in sample if len(cells) == len(header)]
        types = decide(header, whole, self._reading.types)
        told = ", ".join(f"{name} {type_}" for name, type_ in types.items())
        self._reading.tell(f"{self.name}: column types from the first {len(whole)} rows: {told}")
        return types


def _check_count(cells: list[str], header: list[str], place: str) -> None:
    if len(cells) != len(header):
        raise RecordingError(f"{place}: expected {len(header)} cells, got {len(cells)}")


def _event_of(
    cells: list[str], header: list[str], types: Mapping[str, ColumnType], place: str
) -> dict[str, object]:
    event: dict[str, object] = {}
    for name, cell in zip(header, cells, strict=True):
        if not cell:
            continue
        try:
            event[name] = value_of(cell, types[name])
        except CellError as error:
            raise RecordingError(
                f"{place}: `{name}`: {error}, unlike the cells before it; "
                f"`--types {name}=text` reads the whole column as text"
            ) from None
    return event


def _opened(path: str) -> io.BufferedReader:
    try:
        return io.BufferedReader(Path(path).open("rb", 0), READ_BYTES)
    except OSError as error:
        raise RecordingError(f"{path}: {_reason(error)}") from None


def _header(cells: list[str], place: str) -> list[str]:
    if "" in cells:
        raise RecordingError(f"{place}: column {cells.index('') + 1} has no name")
    twice = [name for name in cells if cells.count(name) > 1]
    if twice:
        raise RecordingError(f"{place}: two columns are named `{twice[0]}`")
    return cells


def _time_field_of(event: dict[str, object], place: str) -> str:
    for name in TIME_FIELDS:
        if name in event:
            return name
    raise RecordingError(
        f"{place}: the event has none of {', '.join(TIME_FIELDS)}; name the time field with --time-field"
    )


def _looked_up(event: dict[str, object], time_field: str, place: str) -> object:
    value: object = event.get(time_field)
    if value is None:
        # As in conditions: the whole name first, then its parts between the dots.
        value = event
        for part in time_field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise RecordingError(f"{place}: the event has no field `{time_field}` for its time")
    return value


def _time_of(value: object, time_field: str, place: str) -> int:
    try:
        return microseconds_of(value, time_field)
    except NotATimeError as error:
        raise RecordingError(f"{place}: `{time_field}`: {error}") from None


def _reason(error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "it is not valid UTF-8"
        case OSError(strerror=str(reason)):
            return reason.lower()
        case _:
            return str(error).removeprefix("JSON is malformed: ").lower()
