"""Writes firings: as lines for people, as JSON or CSV for programs, as Parquet for notebooks."""

import csv
import io
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, cast

import click

from api.cli.messages import CommandError
from api.cli.printing.output import KEYS_SHOWN, keys_text
from api.cli.printing.terminal import EscapingStream, on_one_line
from api.cli.recordings.times import iso
from api.cli.trying.trial import NEW, OLD, Firing, Tally

FORMS: Final = ("table", "json", "csv", "parquet")

_MARKS: Final = {NEW: "+", OLD: "-"}

Take = Callable[[Firing], None]
"""Writes a firing."""


def text_output(write: Callable[[str], None], shown_max: int, *, compared: bool) -> Take:
    """Write a line for each firing, but only for the first `shown_max` of each rule."""
    shown: Counter[tuple[str, str]] = Counter()

    def take(firing: Firing) -> None:
        name = firing.rule, firing.version
        shown[name] += 1
        if shown[name] > shown_max:
            return
        mark = f"{_MARKS[firing.version]} " if compared else ""
        key = f"  {keys_text(firing.key)}" if firing.key else ""
        rule = on_one_line(firing.rule)
        held = f"  ({firing.suppressed} held back)" if firing.suppressed else ""
        place = "by time" if firing.timed else on_one_line(firing.event.short_place)
        write(f"{mark}{iso(firing.event.time_us)}  {rule}{key}  {place}{held}")
        if shown[name] == shown_max:
            write(f"  `{rule}`: further firings are only counted (--show)")

    return take


def json_output(write: Callable[[str], None]) -> Take:
    """Write a JSON object for each firing, one a line."""

    def take(firing: Firing) -> None:
        row = as_row(firing)
        if firing.found is not None:
            row["found"] = dict(firing.found)
        if firing.suppressed:
            row["suppressed"] = firing.suppressed
        times = {"time_ms": row["time_us"] / 1_000, "time": iso(row.pop("time_us"))}
        more = {"timed": True} if firing.timed else {"event": firing.event.fields}
        write(json.dumps(row | times | more, ensure_ascii=False, allow_nan=False))

    return take


def csv_output(write: Callable[[str], None]) -> Take:
    """Write a header, and a row for each firing; the keys are a JSON object."""

    def write_row(cells: Iterable[object]) -> None:
        line = io.StringIO()
        # Python 3.11 quotes only those line-ending characters that are in its own terminator.
        csv.writer(line, lineterminator="\r\n").writerow(cells)
        write(line.getvalue().removesuffix("\r\n"))

    def take(firing: Firing) -> None:
        time_us, *cells = as_cells(firing)
        write_row([iso(time_us), *cells])

    write_row(COLUMNS)
    return take


@contextmanager
def file_output(form: str, path: str, shown_max: int, *, compared: bool) -> Iterator[Take]:
    """Write the firings in a format to a file. Raises CommandError if that is impossible."""
    if form == "parquet":
        write_table = _parquet_writer()
        with output_file(path) as file:
            rows: list[list[Any]] = []
            yield lambda firing: rows.append(as_cells(firing))
            write_table(rows, file)
        return
    with output_file(path) as file:
        text = io.TextIOWrapper(file, "utf-8")
        echo = partial(click.echo, file=cast("IO[str]", EscapingStream(text)))
        yield form_output(form, echo, shown_max, compared=compared)
        text.flush()
        text.detach()


def form_output(form: str, write: Callable[[str], None], shown_max: int, *, compared: bool) -> Take:
    """Write the firings in a text format."""
    match form:
        case "json":
            return json_output(write)
        case "csv":
            return csv_output(write)
        case _:
            return text_output(write, shown_max, compared=compared)


def _parquet_writer() -> Callable[[list[list[Any]], IO[bytes]], None]:
    """Return the function that writes rows as a table. Raises CommandError if pyarrow is missing."""
    try:
        import pyarrow as pa  # noqa: PLC0415 -- optional
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise CommandError("Parquet needs the package pyarrow: pip install pyarrow") from None

    def write(rows: list[list[Any]], file: IO[bytes]) -> None:
        types = [pa.timestamp("us", tz="UTC"), *[pa.string()] * 4, pa.int64()]
        fields = list(zip(COLUMNS, types, strict=True))
        columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
        arrays = [pa.array(column, type_) for column, (_, type_) in zip(columns, fields, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), file)

    return write


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
        "line": None if firing.timed else event.line,
    }


def as_cells(firing: Firing) -> list[Any]:
    """Return a firing as the cells of a row."""
    return list(
        (as_row(firing) | {"keys": json.dumps(firing.key, ensure_ascii=False, allow_nan=False)}).values()
    )


def rows_by_key(tally: Tally) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a rule, one for each key, most frequent first."""
    keys = sorted(tally.by_key.values(), key=lambda each: -each.times)
    for each in keys[:KEYS_SHOWN]:
        _, times, first, last = summary(each, compared=False)
        yield tally.name, each.name, times, first, last
    if not keys:
        yield tally.name, "", "0", "", ""
    if len(keys) > KEYS_SHOWN:
        left = sum(each.times for each in keys[KEYS_SHOWN:])
        yield tally.name, f"{len(keys) - KEYS_SHOWN} more keys", str(left), "", ""


def summary(tally: Tally, *, compared: bool) -> tuple[str, ...]:
    """Return a rule's row of the table at the end."""
    counts = tally.fired.values() if compared else [tally.times]
    first, last = (iso(event.time_us) if event else "" for event in (tally.first, tally.last))
    return (tally.name, *map(str, counts), first, last)


@contextmanager
def output_file(path: str) -> Iterator[IO[bytes]]:
    """Yield a file that replaces the one at `path` at the end, but not after an error.

    A pipe or a device is written directly. Raises CommandError if the file cannot be written.
    """
    try:
        # Resolved, so that a symbolic link is not replaced itself.
        target = Path(path).resolve()
        status = target.stat() if target.exists() else None
        if status is not None and not stat.S_ISREG(status.st_mode):
            with target.open("wb") as file:
                yield file
            return
        with _replacing(target, status) as file:
            yield file
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from None


@contextmanager
def _replacing(target: Path, status: os.stat_result | None) -> Iterator[IO[bytes]]:
    if status is not None:
        # Fails if the user may not write the file, although its folder permits replacing it.
        target.open("ab").close()
    beside = target.with_name(f".rule-detector-{secrets.token_hex(8)}.unfinished")
    file = beside.open("xb")
    try:
        with file:
            if status is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            yield file
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
