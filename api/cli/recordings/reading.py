"""Reads recorded events, plain or gzipped, from files or standard input."""

import json
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from api.cli.messages import counted
from api.cli.recordings.documents import (
    Row,
    any_may_be_as_sent,
    document_rows,
    event_as_sent,
    json_rows,
    reason_of,
)
from api.cli.recordings.opening import decoded, opened
from api.cli.recordings.rows import ColumnType, csv_rows, pattern_rows
from api.cli.recordings.skipping import HOPELESS, RecordingError, Skipping
from api.cli.recordings.times import NotATimeError, TimeParser, is_number, iso
from engine.language.diagnostics import quoted
from engine.patterns.named_groups import NamedGroups

if TYPE_CHECKING:
    import io

TIME_FIELDS: Final = ("@timestamp", "timestamp", "timestamp_ms", "time", "ts")
"""The fields that may hold the time, unless one is given."""

_PLAUSIBLE_FROM_US: Final = 315_532_800_000_000
"""The year 1980. A number that would be an earlier time is probably a row number or a duration."""


class RecordedEvent(NamedTuple):
    """One event of a recording."""

    source: str
    """The file's path, or `standard input`."""
    line: int
    fields: dict[str, Any]
    time_us: int
    text: bytes | None = None
    """The JSON text of the fields, if the recording is JSON."""

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.source}, line {self.line}"

    @property
    def short_place(self) -> str:
        """The same without folders, to save space."""
        return f"{PurePath(self.source).name}, line {self.line}"

    @property
    def json(self) -> bytes:
        """The fields as a JSON object."""
        # The standard encoder, because msgspec writes no integers beyond 64 bits.
        return self.text or json.dumps(self.fields, ensure_ascii=False, allow_nan=False).encode()


_NAMES_SHOWN: Final = 8
_NAME_CHARS_SHOWN: Final = 60
_EVENT: Final = tuple.__new__
_READ_AS_CSV: Final = ". It was read as CSV, whose first line names the columns; lines of text need --pattern"


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """Options for reading recordings."""

    time_field: str | None = None
    """The field with the time; None for the first of TIME_FIELDS in the first event."""
    needs_time: bool = True
    """Whether events need a time. If not, their time is 0."""
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    """Types of CSV columns that override what their cells suggest."""
    tell: Callable[[str], None] = lambda _: None
    """Receives notes about how a recording is read."""
    accept_old: Callable[[str], bool] = lambda _: True
    """Receives a sentence about an implausibly early first time; returns whether that time is right."""
    time_format: str | None = None
    """The format of times for `strptime`; None for the formats that `TimeParser` knows."""
    pattern: NamedGroups | None = None
    """A regular expression whose named groups are the fields of each line; None for NDJSON and CSV."""
    zone: tzinfo = UTC
    """The zone of times without a zone."""
    records: str | None = None
    """The path of the array of events in a JSON document; None for an object on each line."""
    strict: bool = False
    """Whether to stop at the first unreadable line. Otherwise such lines are skipped and counted."""


class Recording:
    """An open recording; a context manager that closes it.

    Gzip and UTF-16 are recognized by the first two bytes, CSV by the file's name or else by a first character
    other than a brace, and an array of events by its bracket.
    """

    def __init__(self, path: str, standard_input: IO[bytes], reading: ReadingOptions | None = None) -> None:
        """Open a file, or take standard input for `-`. Raises RecordingError."""
        self._reading = reading or ReadingOptions()
        self._time_field = self._reading.time_field
        """The field with the time; decided by the first event if none is given."""
        self.name = "standard input" if path == "-" else path
        self.size: int | None = None
        """Size of the file in bytes, as stored; None for a pipe."""
        self._owned = path != "-"
        self._source = opened(path) if self._owned else cast("io.BufferedReader", standard_input)
        self._bytes = self._source
        try:
            if self._owned and Path(path).is_file():
                self.size = Path(path).stat().st_size
            self._bytes = decoded(self._source)
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
        """Yield the events in order; skip and report other lines.

        Raises RecordingError where the recording cannot be read further, or has lines but no event.
        """
        for portion in self.portions():
            yield from portion

    def portions(self) -> Iterator[list[RecordedEvent]]:
        """Yield the events like `events`, many at once if they are lines of JSON."""
        is_guess = self._reading.pattern is None and self._reading.records is None and self._is_guessed_csv()
        skipping = Skipping(
            self.name,
            self._reading.tell,
            strict=self._reading.strict,
            # If the format is only a guess, the first line must already be valid.
            hopeless=1 if is_guess else HOPELESS,
        )
        times = self._times()
        # The rows read from the bytes, so they must be closed first.
        with closing(self._rows(skipping)) as portions:
            try:
                for rows in portions:
                    if events := self._usual_events(rows, times, skipping):
                        yield events
                        continue
                    for row in rows:
                        if event := self._event(*row, times, skipping):
                            yield [event]
                skipping.report()
            except RecordingError as error:
                if is_guess and not skipping.has_events:
                    raise RecordingError(f"{error}{_READ_AS_CSV}") from None
                raise
            except (OSError, EOFError, zlib.error) as error:
                raise RecordingError(f"{self.name}: {reason_of(error)}") from None

    def _is_csv(self) -> bool:
        name = self.name.lower().removesuffix(".gz")
        return name.endswith(".csv") or self._is_guessed_csv()

    def _is_guessed_csv(self) -> bool:
        name = self.name.lower().removesuffix(".gz")
        named = name.endswith((".csv", ".ndjson", ".jsonl", ".json"))
        return not named and self._first_character() not in (b"", b"{", b"[")

    def _first_character(self) -> bytes:
        return self._bytes.peek().lstrip()[:1]

    def _rows(self, skipping: Skipping) -> Generator[list[Row], None, None]:
        reading, source = self._reading, self._bytes
        if reading.pattern is not None:
            rows = pattern_rows(source, reading.pattern, reading.types, skipping)
        elif reading.records is not None:
            rows = document_rows(source, reading.records, skipping)
        elif self._is_csv():
            rows = csv_rows(source, reading.types, skipping)
        elif self._first_character() == b"[":
            rows = document_rows(source, "", skipping)
        else:
            return json_rows(source, skipping)
        return ([row] for row in rows)

    def _times(self) -> TimeParser:
        """Return the parser of times. The year, if missing, follows from the file's age, or from now."""
        if self.size is None:
            return TimeParser(self._reading.time_format, zone=self._reading.zone)
        written_us = int(Path(self.name).stat().st_mtime * 1_000_000)
        return TimeParser(self._reading.time_format, latest_us=lambda: written_us, zone=self._reading.zone)

    def _usual_events(
        self, rows: Sequence[Row], times: TimeParser, skipping: Skipping
    ) -> list[RecordedEvent]:
        """Return the events of rows that all have their time in the known field; none if any has not."""
        name, time_field = self.name, self._time_field
        if len(rows) == 1 or time_field is None or not (self._reading.needs_time and skipping.has_events):
            return []
        if not self._reading.time_field and any_may_be_as_sent(rows):
            return []
        try:
            times_us = times.many([fields[time_field] for _, fields, _ in rows], time_field)
        except (KeyError, NotATimeError):
            return []
        return [
            _EVENT(RecordedEvent, (name, line, fields, time_us, text))
            for (line, fields, text), time_us in zip(rows, times_us, strict=True)
        ]

    def _event(
        self, line: int, fields: dict[str, Any], text: bytes | None, times: TimeParser, skipping: Skipping
    ) -> RecordedEvent | None:
        """Return the event of a row, or skip it."""
        time_us = 0
        sent = None if self._reading.time_field else event_as_sent(fields)
        if sent is not None:
            fields, text = sent[0], None
        if self._reading.needs_time:
            try:
                named = "timestamp_ms" if sent else self._time_field or _time_field_of(fields)
                value = sent[1] if sent else _looked_up(fields, named)
                time_us = times.microseconds_of(value, named)
            except NotATimeError as error:
                hint = _context_hint(fields)
                if not (hint or skipping.has_events):
                    hint = _records_hint(fields)
                skipping.skip(line, "without a time", str(error), hint)
                return None
            self._time_field = self._time_field if sent else named
            if not skipping.has_events and is_number(value):
                self._check_plausible(time_us, f"{self.name}, line {line}: `{named}` is {value}")
        skipping.has_events = True
        return RecordedEvent(self.name, line, fields, time_us, text)

    def _check_plausible(self, time_us: int, finding: str) -> None:
        if 0 <= time_us < _PLAUSIBLE_FROM_US:
            finding += f", which as a time is {iso(time_us)}"
            if not self._reading.accept_old(finding):
                raise RecordingError(f"{finding}; is it a row number? Name the time field with --time-field")


def _time_field_of(fields: Mapping[str, object]) -> str:
    for name in TIME_FIELDS:
        if name in fields:
            return name
    shown = ", ".join(name[:_NAME_CHARS_SHOWN] for name in list(fields)[:_NAMES_SHOWN])
    there = f" (it has {shown}{', …' if len(fields) > _NAMES_SHOWN else ''})" if shown else ""
    raise NotATimeError(
        f"the event has none of {', '.join(TIME_FIELDS)}{there}; name the time field with --time-field"
    )


def _context_hint(fields: Mapping[str, object]) -> str:
    """Return a hint how to give the vars of events that are bodies of evaluations."""
    if fields.keys() == {"event", "context"}:
        return "; the context of a line is not read: remove it, and give its vars with --vars"
    return ""


def _records_hint(fields: Mapping[str, object]) -> str:
    """Return a hint how to read events in an array of an object, such as CloudTrail's `Records`."""
    for name, value in fields.items():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            return (
                f"; {quoted(name)} is an array of {counted(len(value), 'object')}: if they are the events, "
                f"`--records {name}` reads them"
            )
    return ""


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
