"""Writes firings: as lines for people, as JSON or CSV for programs, as Parquet for notebooks."""

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, Final, Self

from api.cli.failures import CommandError
from api.cli.recordings.times import iso
from api.cli.trying.trial import NEW, OLD, Firing, Tally
from engine.language.diagnostics import printable

FORMS: Final = ("table", "json", "csv", "parquet")

_MARKS: Final = {NEW: "+", OLD: "-"}


class Output(ABC):
    """Takes firings while it is entered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 -- most have nothing to close
        """Close what was opened."""

    @abstractmethod
    def take(self, firing: Firing) -> None:
        """Write a firing."""


class TextOutput(Output):
    """A line for each firing, the first `shown_max` of each rule only."""

    def __init__(self, write: Callable[[str], None], shown_max: int, *, compared: bool) -> None:
        self._write = write
        self._shown_max = shown_max
        self._compared = compared
        self._shown: dict[tuple[str, str], int] = {}

    def take(self, firing: Firing) -> None:
        """Write a firing."""
        name = firing.rule, firing.version
        shown = self._shown[name] = self._shown.get(name, 0) + 1
        if shown > self._shown_max:
            return
        mark = f"{_MARKS[firing.version]} " if self._compared else ""
        key = f"  {key_text(firing)}" if firing.key else ""
        self._write(f"{mark}{iso(firing.event.time_us)}  {firing.rule}{key}  {short_place(firing)}")
        if shown == self._shown_max:
            self._write(f"  `{firing.rule}`: further firings are only counted (--show)")


class JsonOutput(Output):
    """A JSON object for each firing, one a line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def take(self, firing: Firing) -> None:
        """Write a firing."""
        row = as_row(firing)
        times = {"time_ms": row["time_us"] / 1_000, "time": iso(row.pop("time_us"))}
        self._write(json.dumps(row | times | {"event": firing.event.fields}, ensure_ascii=False))


class CsvOutput(Output):
    """A row for each firing; the keys are a JSON object."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._row(COLUMNS)

    def take(self, firing: Firing) -> None:
        """Write a firing."""
        time_us, *cells = as_cells(firing)
        self._row([iso(time_us), *cells])

    def _row(self, cells: Iterable[object]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(cells)
        self._write(line.getvalue())


class ParquetOutput(Output):
    """A table of all firings, written at the end. Wants pyarrow."""

    def __init__(self, path: str) -> None:
        try:
            import pyarrow as pa  # noqa: F401, PLC0415 -- optional
        except ImportError:
            raise CommandError("Parquet needs the package pyarrow: pip install pyarrow") from None
        self._path = path
        self._rows: list[list[Any]] = []

    def take(self, firing: Firing) -> None:
        """Keep a firing."""
        self._rows.append(as_cells(firing))

    def __exit__(self, *_: object) -> None:
        """Write the table."""
        import pyarrow as pa  # noqa: PLC0415 -- optional
        import pyarrow.parquet as pq  # noqa: PLC0415

        types = [pa.timestamp("us", tz="UTC"), *[pa.string()] * 4, pa.int64()]
        fields = list(zip(COLUMNS, types, strict=True))
        columns = list(zip(*self._rows, strict=True)) or [()] * len(COLUMNS)
        arrays = [pa.array(column, type_) for column, (_, type_) in zip(columns, fields, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), self._path)


COLUMNS: Final = ("time", "rule", "version", "keys", "file", "line")


def as_row(firing: Firing) -> dict[str, Any]:
    """Return a firing by column, with its time in microseconds."""
    event = firing.event
    return {
        "time_us": event.time_us,
        "rule": firing.rule,
        "version": firing.version,
        "keys": firing.key,
        "file": event.source,
        "line": event.line,
    }


def as_cells(firing: Firing) -> list[Any]:
    """Return a firing as the cells of a row."""
    return list((as_row(firing) | {"keys": json.dumps(firing.key, ensure_ascii=False)}).values())


def key_text(firing: Firing) -> str:
    """Return the key as `ip=192.0.2.7`."""
    return " ".join(
        f"{name}={printable(value) if isinstance(value, str) else json.dumps(value)}"
        for name, value in firing.key.items()
    )


def short_place(firing: Firing) -> str:
    """Return file and line; the file's folders would fill the line."""
    return f"{PurePath(firing.event.source).name}, line {firing.event.line}"


def summary(tally: Tally, *, compared: bool) -> tuple[str, ...]:
    """Return a rule's row of the table at the end."""
    counts = tally.fired.values() if compared else [tally.times]
    first, last = (iso(event.time_us) if event else "" for event in (tally.first, tally.last))
    return (tally.name, *map(str, counts), first, last)
