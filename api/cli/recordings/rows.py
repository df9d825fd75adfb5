"""Reads rows of CSV, or lines that match a pattern, and converts their cells to typed values."""

import csv
import io
import math
import re
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Literal, get_args

from api.cli.messages import counted
from api.cli.recordings.documents import LINE_BYTES_MAX, Row, lines_of, reason_of
from api.cli.recordings.skipping import RecordingError, Skipping
from engine.language.diagnostics import quoted
from engine.language.limits import DEFAULT_LIMITS
from engine.patterns.named_groups import NamedGroups

ColumnType = Literal["text", "number", "boolean"]
COLUMN_TYPES: Final[tuple[ColumnType, ...]] = get_args(ColumnType)

_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
"""Booleans as JSON, Python and spreadsheets write them."""
_NAN: Final = frozenset({"NaN", "nan", "NAN"})
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
READ_BYTES: Final = 1024 * 1024
"""The bytes read at once. The first read decides the types of columns."""
COLUMNS_MAX: Final = 4096
"""The maximum number of columns of CSV."""
_COLUMNS_SHOWN: Final = 100
_SEPARATORS: Final = ",;\t"
"""The characters that may separate CSV cells. The most frequent one in the header is used."""


class CellError(ValueError):
    """A cell does not have its column's type; the message shows the cell."""


def decide(
    header: Sequence[str], sample: Iterable[Sequence[str]], given: Mapping[str, ColumnType]
) -> dict[str, ColumnType]:
    """Return the type of each column: the `given` one, else one that fits all its cells in the sample.

    Missing cells decide nothing. A column with only missing cells is text.
    """
    rows = list(sample)
    return {
        name: given.get(name) or _type_of([row[place] for row in rows if not is_missing(row[place])])
        for place, name in enumerate(header)
    }


def is_missing(cell: str) -> bool:
    """Return whether a cell has no value: it is empty, or `NaN` as data frames write it."""
    return not cell or cell in _NAN


def value_of(cell: str, type_: ColumnType) -> str | float | bool:
    """Return the cell as a value of that type. Raises CellError."""
    match type_:
        case "text":
            return cell
        case "boolean" if cell in _BOOLEANS:
            return _BOOLEANS[cell]
        case "number" if (number := _number(cell)) is not None:
            return number
        case _:
            raise CellError(f"`{cell[:40]}` is not a {type_}")


def _type_of(cells: Sequence[str]) -> ColumnType:
    if not cells:
        return "text"
    if all(cell in _BOOLEANS for cell in cells):
        return "boolean"
    return "number" if all(_number(cell) is not None for cell in cells) else "text"


def _number(cell: str) -> float | None:
    """Return the number in a cell of JSON's format; None if there is none, or it is out of range."""
    match = _NUMBER.fullmatch(cell)
    if not match:
        return None
    if match[2] is None and match[3] is None:
        return int(cell) if len(match[1]) <= DEFAULT_LIMITS.digits_max else None
    return float(cell) if math.isfinite(float(cell)) else None


class _Lines:
    """The lines of a CSV file as text, and those that the current row has taken.

    If a row of several lines turns out to be invalid because a quote is never closed, all its lines but the
    first are given back. Altogether no more than LINE_BYTES_MAX characters are read again, which bounds the
    cost of hostile files.
    """

    def __init__(self, source: io.BufferedReader, name: str) -> None:
        self._source = source
        self._name = name
        self._again = deque[str]()
        self._again_chars = 0
        self._taken: list[str] = []
        self._taken_chars = 0
        self.number = 0
        """The number of the last line."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._source_line()
        if not line:
            raise StopIteration
        self.number += 1
        self._taken.append(line)
        self._taken_chars += len(line)
        if self._taken_chars > LINE_BYTES_MAX:
            raise self._too_long(self.number)
        return line

    def _source_line(self) -> str:
        raw = self._source.readline(LINE_BYTES_MAX + 1)
        if len(raw) > LINE_BYTES_MAX:
            raise self._too_long(self.number + 1)
        # Bytes that are not UTF-8 become surrogates, for which the row is skipped.
        return raw.decode("utf-8", "surrogateescape")

    def _too_long(self, number: int) -> RecordingError:
        return RecordingError(f"{self._name}, line {number}: a row is longer than {LINE_BYTES_MAX >> 20} MiB")

    def begin_row(self) -> None:
        """Forget the lines of the last row."""
        self._taken.clear()
        self._taken_chars = 0

    def give_back(self) -> int:
        """Give back all lines of an invalid row but the first; return the number of the first."""
        chars = self._taken_chars - len(self._taken[0])
        first = self.number - len(self._taken) + 1
        if self._again_chars + chars <= LINE_BYTES_MAX:
            self._again_chars += chars
            self._again.extendleft(reversed(self._taken[1:]))
            self.number = first
        return first

    def row_text(self) -> str:
        """Return the lines of the row."""
        return "".join(self._taken)


def csv_rows(
    source: io.BufferedReader, given: Mapping[str, ColumnType], skipping: Skipping
) -> Generator[Row, None, None]:
    """Yield the rows of a CSV file with a header; skip invalid ones."""
    name = skipping.name
    sample_rows = max(1, _lines_begun(source) - 1)
    header_line = source.peek().lstrip(b"\r\n").partition(b"\n")[0]
    separator = max(_SEPARATORS, key=lambda mark: header_line.count(mark.encode()))
    lines = _Lines(source, name)
    reader = csv.reader(lines, strict=True, delimiter=separator)

    def filled_rows() -> Iterator[tuple[int, list[str]]]:
        has_header = False
        while True:
            lines.begin_row()
            try:
                cells = next(reader, None)
                if cells is None:
                    return
                if not lines.row_text().isascii():
                    lines.row_text().encode()
            except (csv.Error, UnicodeEncodeError) as error:
                reason = reason_of(error) if isinstance(error, csv.Error) else "it is not valid UTF-8"
                if not has_header:
                    # If even the first line is invalid, the input may be anything.
                    raise RecordingError(f"{name}: neither NDJSON nor CSV: {reason}") from None
                text = lines.row_text()
                skipping.skip(lines.give_back(), "without a row of CSV", f"not CSV: {reason}", "", text)
                continue
            if cells:
                has_header = True
                yield lines.number, cells

    rows = filled_rows()
    first = next(rows, None)
    if first is not None:
        header = _header(first[1], f"{name}, line {first[0]}")
        second = next(rows, None)
        if second is None:
            only = f"it has only the line that names the columns: {_listed(header)}"
            skipping.tell(f"{name}: {only}; lines of text need --pattern")
        yield from _typed(chain([second] if second else [], rows), sample_rows, header, given, skipping)


def pattern_rows(
    source: io.BufferedReader, pattern: NamedGroups, given: Mapping[str, ColumnType], skipping: Skipping
) -> Generator[Row, None, None]:
    """Yield the named groups of each line that matches a pattern; skip the others."""

    def matched() -> Iterator[tuple[int, list[str]]]:
        for number, raw in lines_of(source, skipping.name, LINE_BYTES_MAX):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            found = pattern.found_in(line)
            if found is not None:
                yield number, found
            elif line:
                skipping.skip_unmatched(number, line)

    yield from _typed(matched(), _lines_begun(source), pattern.names, given, skipping)


def _lines_begun(source: io.BufferedReader) -> int:
    """Count the lines that begin in the result of one read, because a pipe may take long to deliver more.

    The last line counts even without its end, which the last line of a file may lack.
    """
    text = source.peek()
    return text.count(b"\n") + (not text.endswith(b"\n"))


def _typed(
    rows: Iterator[tuple[int, list[str]]],
    sample_rows: int,
    header: list[str],
    given: Mapping[str, ColumnType],
    skipping: Skipping,
) -> Iterator[Row]:
    """Yield rows of cells as events, with the types that the cells of the first rows suggest."""
    unknown = [column for column in given if column not in header]
    if unknown:
        raise RecordingError(
            f"{skipping.name}: --types names the column {quoted(unknown[0])}; there are {_listed(header)}"
        )
    sample = _sample(rows, sample_rows)
    whole = [cells for _, cells in sample if len(cells) == len(header)]
    types = decide(header, whole, given)
    listed = _listed([f"{column} {type_}" for column, type_ in types.items()])
    if whole:
        skipping.tell(f"{skipping.name}: column types from the first {counted(len(whole), 'row')}: {listed}")
    texts = {column for column in given if types[column] == "text"}
    for line, cells in chain(sample, rows):
        if len(cells) != len(header):
            reason = f"expected {len(header)} cells, got {len(cells)}"
            skipping.skip(line, "with more or fewer cells", reason, "", " ".join(cells))
            continue
        try:
            event = _event_of(cells, types, texts)
        except CellError as error:
            skipping.skip(line, "with a cell of another type", str(error))
            continue
        yield line, event, None


def _sample(rows: Iterator[tuple[int, list[str]]], rows_max: int) -> list[tuple[int, list[str]]]:
    """Take the first rows: a number of them, or a megabyte."""
    sample: list[tuple[int, list[str]]] = []
    chars = 0
    while len(sample) < rows_max and chars < READ_BYTES and (row := next(rows, None)):
        sample.append(row)
        chars += sum(map(len, row[1]))
    return sample


def _listed(words: list[str]) -> str:
    return ", ".join([*words[:_COLUMNS_SHOWN], *(["…"] if len(words) > _COLUMNS_SHOWN else [])])


def _event_of(cells: list[str], types: Mapping[str, ColumnType], texts: set[str]) -> dict[str, Any]:
    """Return the fields of a row. The columns in `texts` need no conversion. Raises CellError."""
    event: dict[str, Any] = {}
    for (name, type_), cell in zip(types.items(), cells, strict=True):
        if not cell or (is_missing(cell) and name not in texts):
            continue
        try:
            event[name] = value_of(cell, type_)
        except CellError as error:
            raise CellError(
                f"{quoted(name)}: {error}, unlike the cells before it; "
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
