"""Recorded streams as events: NDJSON or CSV, plain or gzipped, from files or standard input."""

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Final, NamedTuple, Self, cast

import msgspec

from api.commands.times import NotATimeError, microseconds_of
from engine.language.limits import DEFAULT_LIMITS

TIME_FIELDS: Final = ("@timestamp", "timestamp", "timestamp_ms", "time", "ts")
"""Where the time is looked for when nobody says where it stands."""

_GZIP: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class RecordingError(Exception):
    """A recording that cannot be read, or not read on; the message names the file and the line."""


class RecordedEvent(NamedTuple):
    """One event of a recording."""

    place: str
    """File and line, for people."""
    fields: bytes
    """The event's fields as a JSON object."""
    time_us: int


class Recording:
    """An open recording; a context manager that closes it.

    Gzip is told by its first two bytes, CSV by the name or else by a first character that is no brace.
    """

    def __init__(self, path: str, standard_input: IO[bytes]) -> None:
        """Open a file, or take standard input for `-`. Raises RecordingError."""
        self.name = "standard input" if path == "-" else path
        self.size: int | None = None
        """Bytes as they lie in the file; None where nobody can know."""
        self._owned = path != "-"
        self._source = _opened(path) if self._owned else cast("io.BufferedReader", standard_input)
        self._bytes = self._source
        try:
            if self._owned and Path(path).is_file():
                self.size = Path(path).stat().st_size
            if self._source.peek(2)[:2] == _GZIP:
                self._bytes = io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=self._source)))
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
        """How many of its bytes have been read; 0 where nobody counts."""
        return 0 if self.size is None else self._source.tell()

    def events(self, time_field: str | None = None) -> Iterator[RecordedEvent]:
        """Give the events in the order of the recording. Raises RecordingError at the first that is none.

        Without a `time_field`, the first of TIME_FIELDS that the first event has holds the time of all.
        """
        rows = self._csv_rows() if self._is_csv() else self._json_rows()
        try:
            for line, event, fields in rows:
                place = f"{self.name}, line {line}"
                time_field = time_field or _time_field_of(event, place)
                yield RecordedEvent(place, fields, _time_of(event, time_field, place))
        except (OSError, EOFError) as error:
            raise RecordingError(f"{self.name}: {_reason(error)}") from None

    def _is_csv(self) -> bool:
        name = self.name.lower().removesuffix(".gz")
        if name.endswith((".csv", ".ndjson", ".jsonl", ".json")):
            return name.endswith(".csv")
        start = self._bytes.peek(64).lstrip()
        return bool(start) and start[:1] not in (b"{", b"[")

    def _json_rows(self) -> Iterator[tuple[int, dict[str, object], bytes]]:
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
                raise RecordingError(f"{place}: expected a JSON object, one to a line")
            yield number, event, text

    def _csv_rows(self) -> Iterator[tuple[int, dict[str, object], bytes]]:
        text = io.TextIOWrapper(self._bytes, encoding="utf-8", newline="")
        reader = csv.reader(text, strict=True)
        header: list[str] | None = None
        try:
            for cells in reader:
                place = f"{self.name}, line {reader.line_num}"
                if not cells:
                    continue
                if header is None:
                    header = _header(cells, place)
                    continue
                if len(cells) != len(header):
                    raise RecordingError(f"{place}: expected {len(header)} cells, got {len(cells)}")
                event = {name: _cell(text) for name, text in zip(header, cells, strict=True) if text}
                # The standard encoder, since msgspec writes no integers past 64 bits.
                yield reader.line_num, event, json.dumps(event, ensure_ascii=False).encode()
        except (csv.Error, UnicodeDecodeError) as error:
            raise RecordingError(f"{self.name}, line {reader.line_num}: not CSV: {_reason(error)}") from None
        finally:
            # The bytes are closed by whoever opened them.
            text.detach()


def _opened(path: str) -> io.BufferedReader:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise RecordingError(f"{path}: {_reason(error)}") from None


def _header(cells: list[str], place: str) -> list[str]:
    if "" in cells:
        raise RecordingError(f"{place}: column {cells.index('') + 1} has no name")
    twice = [name for name in cells if cells.count(name) > 1]
    if twice:
        raise RecordingError(f"{place}: two columns are named `{twice[0]}`")
    return cells


def _cell(text: str) -> object:
    """A CSV cell has no type: what JSON would read as a number or boolean is one, all else is text."""
    if text in ("true", "false"):
        return text == "true"
    if not (number := _NUMBER.fullmatch(text)):
        return text
    if number.group(2) is None and number.group(3) is None:
        return int(text) if len(text) <= DEFAULT_LIMITS.digits_max else text
    return float(text) if math.isfinite(float(text)) else text


def _time_field_of(event: dict[str, object], place: str) -> str:
    for name in TIME_FIELDS:
        if name in event:
            return name
    raise RecordingError(
        f"{place}: none of {', '.join(TIME_FIELDS)} is there; say which field holds the time"
    )


def _time_of(event: dict[str, object], time_field: str, place: str) -> int:
    value: object = event.get(time_field)
    if value is None:
        # The same look-up as in conditions: the whole name first, then along its dots.
        value = event
        for part in time_field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise RecordingError(f"{place}: the event has no `{time_field}`, which is to hold its time")
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
