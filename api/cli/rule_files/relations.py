"""The relations of a rules file: their tuples, in the file or in a file beside it."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from api.cli.messages import counted
from engine.language.diagnostics import json_type

Scalar: TypeAlias = str | int | float | bool
Tuple: TypeAlias = tuple[Scalar, ...]

TUPLES_MAX: Final = 1_000_000
"""The maximum number of tuples of a relation."""
FILE_BYTES_MAX: Final = 256 * 1024 * 1024

_WORDS: Final = {"true": True, "false": False}
_HALF: Final = re.compile("[\ud800-\udfff]")
_JSON: Final = (".ndjson", ".jsonl", ".json")


class RelationError(ValueError):
    """A relation cannot be read; the message says why, with file and line."""


class RelationFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The tuples of a relation in a file beside the rules file.

    A `.csv` file has a tuple in each row; a `.ndjson`, `.jsonl` or `.json` file has one in each line, as
    JSON. Any other file has a text in each line; blank lines and lines that begin with `#` do not count.
    """

    file: Annotated[str, Meta(min_length=1, extra={"expected": "the path of a file"})]
    """The path of the file, relative to the folder of the rules file."""
    header: bool = False
    """Whether the first row of CSV is a header."""
    types: list[
        Annotated[
            str,
            Meta(pattern="^(string|number|boolean)$", extra={"expected": "`string`, `number` or `boolean`"}),
        ]
    ] = []
    """The types of the columns of CSV. Without them, every cell is a string."""


Relation: TypeAlias = list[Any] | RelationFile
"""Tuples, each a list of strings, numbers and booleans, or a single one of these; or the file with them."""


def tuples_in(relation: Relation, folder: Path) -> list[Tuple]:
    """Return the tuples of a relation, in order, without duplicates. Raises RelationError."""
    if isinstance(relation, list):
        return _collected((f"tuple {number}", given) for number, given in enumerate(relation, 1))
    path = folder / relation.file
    try:
        with path.open("rb") as file:
            # The size of a device or a pipe is not known before.
            raw = file.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise RelationError(f"{path}: it has more than {FILE_BYTES_MAX >> 20} MiB")
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RelationError(f"{path}: byte {error.start} is not valid UTF-8") from None
    except OSError as error:
        raise RelationError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        return _collected(_rows(relation, path.suffix.lower(), text))
    except RelationError as error:
        raise RelationError(f"{path}, {error}") from None


def _rows(relation: RelationFile, suffix: str, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the tuples of a file, each with its place."""
    if suffix == ".csv":
        yield from _csv_rows(relation, text)
        return
    if relation.header or relation.types:
        raise RelationError("line 1: only CSV has `header` and `types`; name it .csv")
    if suffix not in _JSON:
        yield from values_in(text)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError):
                raise RelationError(f"line {number}: it is not JSON") from None


def values_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the values of a text with one in each line, each with its place."""
    for number, line in enumerate(text.split("\n"), 1):
        value = line.strip()
        if value and not value.startswith("#"):
            yield f"line {number}", value


def _csv_rows(relation: RelationFile, text: str) -> Iterator[tuple[str, Any]]:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    reads: list[Callable[[str], Scalar]] = [_READ[each] for each in relation.types]
    try:
        for number, row in enumerate(rows):
            place = f"line {rows.line_num}"
            if not row or (relation.header and not number):
                continue
            if not reads:
                yield place, row
                continue
            if len(reads) != len(row):
                raise RelationError(f"{place}: it has {len(row)} cells, and `types` has {len(reads)}")
            try:
                yield place, [read(cell) for read, cell in zip(reads, row, strict=True)]
            except (ValueError, KeyError):
                types = ", ".join(relation.types)
                raise RelationError(f"{place}: its cells are not of the types {types}") from None
    except csv.Error as error:
        raise RelationError(f"line {rows.line_num}: {error}") from None


def _number(cell: str) -> Scalar:
    number = json.loads(cell)
    if type(number) not in (int, float) or number - number != 0:
        raise ValueError
    return number  # type: ignore[no-any-return]


_READ: Final[dict[str, Callable[[str], Scalar]]] = {
    "string": str,
    "number": _number,
    "boolean": _WORDS.__getitem__,
}


def _collected(given: Iterable[tuple[str, Any]]) -> list[Tuple]:
    """Return the tuples, each once. Raises RelationError."""
    found: dict[object, Tuple] = {}
    arity: int | None = None
    for place, one in given:
        members = tuple(one) if isinstance(one, list) else (one,)
        for member in members:
            if not isinstance(member, str | int | float):
                said = "strings, numbers and booleans"
                raise RelationError(f"{place}: a tuple holds {said}, not {json_type(member)}")
            if isinstance(member, float) and not isfinite(member):
                raise RelationError(f"{place}: a tuple holds finite numbers, not {member}")
            if isinstance(member, str) and not member.isascii() and _HALF.search(member):
                raise RelationError(f"{place}: a tuple holds no halves of surrogate pairs")
        arity = len(members) if arity is None else arity
        if len(members) != arity:
            raise RelationError(f"{place}: it has {counted(len(members), 'value')}, the first tuple {arity}")
        found.setdefault(identity(members), members)
        if len(found) > TUPLES_MAX:
            raise RelationError(f"{place}: a relation has at most {TUPLES_MAX} tuples")
    return list(found.values())


def identity(members: Iterable[Scalar]) -> object:
    """Return a key that is equal for equal tuples: `true` is not 1, but 1 is 1.0."""
    return tuple((member, type(member) is bool) for member in members)
