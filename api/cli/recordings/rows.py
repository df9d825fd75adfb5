"""The rows of a recording: NDJSON, CSV, or lines that match a pattern."""

import csv
import io
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain, islice
from re import Pattern
from typing import Any, Final

import msgspec

from api.cli.counted import counted
from api.cli.failures import CommandError
from api.cli.recordings.columns import CellError, ColumnType, decide, value_of

READ_BYTES: Final = 1024 * 1024
"""How much is read at once. The first read decides the types of columns."""

Row = tuple[int, dict[str, Any], bytes | None]
"""Line number, fields, and the fields as they stand in the recording, if that is JSON."""

Tell = Callable[[str], None]

_HAS_BREAKS: Final = "; each line must be a whole JSON object, as `jq -c .` writes them"
_IS_ARRAY: Final = ", got an array; `jq -c '.[]'` writes its elements so"
_SEPARATORS: Final = ",;\t"
"""The characters that may separate the cells of CSV. The one that the header has most of does."""


class RecordingError(CommandError):
    """A recording cannot be read, or read further; the message names file and line."""


def json_rows(source: Iterable[bytes], name: str) -> Generator[Row, None, None]:
    """Yield the JSON object on each line. Raises RecordingError at the first line that is none."""
    decode = msgspec.json.decode
    for number, raw in enumerate(source, 1):
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
        yield number, fields, text


def csv_rows(
    source: io.BufferedReader, name: str, given: Mapping[str, ColumnType], tell: Tell
) -> Generator[Row, None, None]:
    """Yield the rows of a CSV file with a header. Raises RecordingError at the first that does not fit."""
    sample_rows = max(1, _lines_begun(source) - 1)
    header_line = source.peek().lstrip(b"\r\n").partition(b"\n")[0]
    separator = max(_SEPARATORS, key=lambda mark: header_line.count(mark.encode()))
    text = io.TextIOWrapper(source, encoding="utf-8", newline="")
    reader = csv.reader(text, strict=True, delimiter=separator)
    try:
        rows = ((reader.line_num, cells) for cells in reader if cells)
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
    source: io.BufferedReader, name: str, pattern: Pattern[str], given: Mapping[str, ColumnType], tell: Tell
) -> Generator[Row, None, None]:
    """Yield the named groups of each line that matches a pattern, and report how many lines do not."""
    header = list(pattern.groupindex)
    passed = 0

    def matched() -> Iterator[tuple[int, list[str]]]:
        nonlocal passed
        for number, raw in enumerate(source, 1):
            found = pattern.search(raw.decode("utf-8", "replace").rstrip("\r\n"))
            if found is not None:
                yield number, [found[group] or "" for group in header]
            else:
                passed += 1

    yield from _typed(matched(), _lines_begun(source), header, name, given=given, tell=tell)
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
            f"{name}: --types names the column `{unknown[0]}`; there are {', '.join(header)}"
        )
    sample = list(islice(rows, sample_rows))
    whole = [cells for _, cells in sample if len(cells) == len(header)]
    types = decide(header, whole, given)
    listed = ", ".join(f"{column} {type_}" for column, type_ in types.items())
    if whole:
        tell(f"{name}: column types from the first {counted(len(whole), 'row')}: {listed}")
    for line, cells in chain(sample, rows):
        if len(cells) != len(header):
            raise RecordingError(f"{name}, line {line}: expected {len(header)} cells, got {len(cells)}")
        yield line, _event_of(cells, types, name, line), None


def _event_of(cells: list[str], types: Mapping[str, ColumnType], source: str, line: int) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for (name, type_), cell in zip(types.items(), cells, strict=True):
        if not cell:
            continue
        try:
            event[name] = value_of(cell, type_)
        except CellError as error:
            raise RecordingError(
                f"{source}, line {line}: `{name}`: {error}, unlike the cells before it; "
                f"`--types {name}=text` reads the whole column as text"
            ) from None
    return event


def _header(cells: list[str], place: str) -> list[str]:
    if "" in cells:
        raise RecordingError(f"{place}: column {cells.index('') + 1} has no name")
    twice = [name for name in cells if cells.count(name) > 1]
    if twice:
        raise RecordingError(f"{place}: two columns are named `{twice[0]}`")
    return cells


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
