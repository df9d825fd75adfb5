"""The types of CSV columns, decided by their cells."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

from engine.language.limits import DEFAULT_LIMITS

ColumnType = Literal["text", "number", "boolean"]
COLUMN_TYPES: Final[tuple[ColumnType, ...]] = get_args(ColumnType)

_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
"""As JSON, Python and spreadsheets write them."""
_NAN: Final = frozenset({"NaN", "nan", "NAN"})
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class CellError(ValueError):
    """A cell does not have its column's type; the message shows the cell."""


def decide(
    header: Sequence[str], sample: Iterable[Sequence[str]], given: Mapping[str, ColumnType]
) -> dict[str, ColumnType]:
    """Return the type of each column: the `given` one, else one that fits all its cells in the sample.

    Cells that are missing decide nothing. A column with only such cells is text.
    """
    rows = list(sample)
    return {
        name: given.get(name) or _type_of([row[place] for row in rows if not is_missing(row[place])])
        for place, name in enumerate(header)
    }


def is_missing(cell: str) -> bool:
    """Return whether a cell stands for no value: it is empty, or `NaN` as data frames write it."""
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
    """Return the number that JSON would read; None if there is none, or if it is out of range."""
    match = _NUMBER.fullmatch(cell)
    if not match:
        return None
    if match[2] is None and match[3] is None:
        return int(cell) if len(match[1]) <= DEFAULT_LIMITS.digits_max else None
    return float(cell) if math.isfinite(float(cell)) else None
