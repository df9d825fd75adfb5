"""The rows of a recording: NDJSON, CSV, or lines that match a pattern."""

import csv
import io
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any, Final

import msgspec

from api.cli.counted import counted
from api.cli.failures import CommandError
from api.cli.recordings.columns import CellError, ColumnType, decide, value_of
from engine.language.diagnostics import quoted
from engine.patterns.named_groups import NamedGroups

READ_BYTES: Final = 1024 * 1024
"""How much is read at once. The first read decides the types of columns."""

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The longest line, and the longest row of CSV in characters. A few kilobytes of gzip can hold gigabytes."""

COLUMNS_MAX: Final = 4096
"""The most columns of CSV."""

NESTING_MAX: Final = 64
"""How deep the objects and arrays of an event may be nested."""

_COLUMNS_SHOWN: Final = 100

Row = tuple[int, dict[str, Any], bytes | None]
"""Line number, fields, and the fields as they stand in the recording, if that is JSON."""

Tell = Callable[[str], None]

_HAS_BREAKS: Final = "; each line must be a whole JSON object, as `jq -c .` writes them"
_IS_ARRAY: Final = ", got an array; `jq -c '.[]'` writes its elements so"
_SEPARATORS: Final = ",;\t"
"""The characters that may separate the cells of CSV. The one that the header has most of does."""


class RecordingError(CommandError):
    """A recording cannot be read, or read further; the message names file and line."""


def _lines(source: io.BufferedReader, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers. Raises RecordingError at one that is too long."""
    for number in count(1):
        raw = source.readline(LINE_BYTES_MAX + 1)
        if not raw:
            return
        if len(raw) > LINE_BYTES_MAX:
            raise RecordingError(f"{name}, line {number}: it is longer than {LINE_BYTES_MAX >> 20} MiB")
        yield number, raw


def json_rows(source: io.BufferedReader, name: str) -> Generator[Row, None, None]:
    """Yield the JSON object on each line. Raises RecordingError at the first line that is none."""
    decode = msgspec.json.decode
    for number, raw in _lines(source, name):
        text = raw.strip()
        if not text:
            continue
        try:
            fields = decode(text)
        except (ValueError, RecursionError) as error:
            reason = reason_of(error)
            hint = _HAS_BREAKS if reason.endswith("truncated") else ""
            raise RecordingError(f"{name}, line {number}: not JSON: {reason}{hint}") from None
        if not isinstance(fields, dict):
            hint = _IS_ARRAY if isinstance(fields, list) else ""
            raise RecordingError(f"{name}, line {number}: expected one JSON object a line{hint}")
        # Most lines have so few brackets that they cannot be nested too deeply.
        if text.count(b"{") + text.count(b"[") > NESTING_MAX and _is_deeper(fields, NESTING_MAX):
            raise RecordingError(f"{name}, line {number}: it is nested more than {NESTING_MAX} deep")
        yield number, fields, text


def csv_rows(
    source: io.BufferedReader, name: str, given: Mapping[str, ColumnType], tell: Tell
) -> Generator[Row, None, None]:
    """Yield the rows of a CSV file with a header. Raises RecordingError at the first that does not fit."""
    sample_rows, row_chars = max(1, _lines_begun(source) - 1), 0
    header_line = source.peek().lstrip(b"\r\n").partition(b"\n")[0]
    separator = max(_SEPARATORS, key=lambda mark: header_line.count(mark.encode()))
    text = io.TextIOWrapper(source, encoding="utf-8", newline="")

    def lines() -> Iterator[str]:
        nonlocal row_chars
        while line := text.readline(LINE_BYTES_MAX + 1):
            row_chars += len(line)
            if row_chars > LINE_BYTES_MAX:
                place = f"{name}, line {reader.line_num + 1}"
                raise RecordingError(f"{place}: a row is longer than {LINE_BYTES_MAX >> 20} MiB")
            yield line

    def filled_rows() -> Iterator[tuple[int, list[str]]]:
        nonlocal row_chars
        for cells in reader:
            row_chars = 0
            if cells:
                yield reader.line_num, cells

    reader = csv.reader(lines(), strict=True, delimiter=separator)
    try:
        rows = filled_rows()
        first = next(rows, None)
        if first is None:
            return
        header = _header(first[1], f"{name}, line {first[0]}")
        yield from _typed(rows, sample_rows, header, name, given=given, tell=tell)
    except (csv.Error, UnicodeDecodeError) as error:
        # If even the first line cannot be read, the input may be anything.
        place = (
            f"{name}, line {reader.line_num}: not CSV"
            if reader.line_num
            else f"{name}: neither NDJSON nor CSV"
        )
        raise RecordingError(f"{place}: {reason_of(error)}") from None
    finally:
        # The caller has opened the bytes, and closes them.
        text.detach()


def pattern_rows(
    source: io.BufferedReader, name: str, pattern: NamedGroups, given: Mapping[str, ColumnType], tell: Tell
) -> Generator[Row, None, None]:
    """Yield the named groups of each line that matches a pattern, and report how many lines do not."""
    passed = 0

    def matched() -> Iterator[tuple[int, list[str]]]:
        nonlocal passed
        for number, raw in _lines(source, name):
            found = pattern.found_in(raw.decode("utf-8", "replace").rstrip("\r\n"))
            if found is not None:
                yield number, found
            else:
                passed += 1

    yield from _typed(matched(), _lines_begun(source), pattern.names, name, given=given, tell=tell)
    if passed:
        tell(f"{name}: skipped {counted(passed, 'line')} without a match of the pattern")


def _lines_begun(source: io.BufferedReader) -> int:
    """Count the lines that begin in what one read returns. A pipe may take long to deliver more.

    The last line counts without its end, as the last line of a file may have none.
    """
    text = source.peek()
    return text.count(b"\n") + (not text.endswith(b"\n"))


def _typed(
    rows: Iterator[tuple[int, list[str]]],
    sample_rows: int,
    header: list[str],
    name: str,
    *,
    given: Mapping[str, ColumnType],
    tell: Tell,
) -> Iterator[Row]:
    """Yield rows of cells as events, with the types that the cells of the first rows suggest."""
    unknown = [column for column in given if column not in header]
    if unknown:
        raise RecordingError(
            f"{name}: --types names the column {quoted(unknown[0])}; there are {_listed(header)}"
        )
    sample = _sample(rows, sample_rows)
    whole = [cells for _, cells in sample if len(cells) == len(header)]
    types = decide(header, whole, given)
    listed = _listed([f"{column} {type_}" for column, type_ in types.items()])
    if whole:
        tell(f"{name}: column types from the first {counted(len(whole), 'row')}: {listed}")
    for line, cells in chain(sample, rows):
        if len(cells) != len(header):
            raise RecordingError(f"{name}, line {line}: expected {len(header)} cells, got {len(cells)}")
        yield line, _event_of(cells, types, name, line), None


def _sample(rows: Iterator[tuple[int, list[str]]], rows_max: int) -> list[tuple[int, list[str]]]:
    """Take the first rows: so many, or as many as have a megabyte."""
    sample: list[tuple[int, list[str]]] = []
    chars = 0
    while len(sample) < rows_max and chars < READ_BYTES and (row := next(rows, None)):
        sample.append(row)
        chars += sum(map(len, row[1]))
    return sample


def _listed(words: list[str]) -> str:
    return ", ".join([*words[:_COLUMNS_SHOWN], *(["…"] if len(words) > _COLUMNS_SHOWN else [])])


def _event_of(cells: list[str], types: Mapping[str, ColumnType], source: str, line: int) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for (name, type_), cell in zip(types.items(), cells, strict=True):
        if not cell:
            continue
        try:
            event[name] = value_of(cell, type_)
        except CellError as error:
            raise RecordingError(
                f"{source}, line {line}: {quoted(name)}: {error}, unlike the cells before it; "
                f"`--types {name}=text` reads the whole column as text"
            ) from None
    return event


def _header(cells: list[str], place: str) -> list[str]:
    if len(cells) > COLUMNS_MAX:
        raise RecordingError(f"{place}: it has {len(cells)} columns; at most {COLUMNS_MAX} are read")
    if "" in cells:
        raise RecordingError(f"{place}: column {cells.index('') + 1} has no name")
    seen: set[str] = set()
    for name in cells:
        if name in seen:
            raise RecordingError(f"{place}: two columns are named {quoted(name)}")
        seen.add(name)
    return cells


def _is_deeper(value: object, depth: int) -> bool:
    """Return whether objects and arrays are nested more than `depth` deep."""
    level: list[object] = [value]
    for _ in range(depth + 1):
        members: list[Iterable[object]] = [
            one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)
        ]
        if not members:
            return False
        level = list(chain.from_iterable(members))
    return True


def reason_of(error: Exception) -> str:
    """Say in a few words why a recording cannot be read."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "it is not valid UTF-8"
        case OSError(strerror=str(reason)):
            return reason.lower()
        case _:
            return str(error).removeprefix("JSON is malformed: ").lower()
