"""Converts data frames of pandas or polars to events, and verdicts to a frame of the same kind.

Neither library is imported before a frame of its kind is used.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from types import NoneType
from typing import Any, Final

from engine.evaluation.rules import Fired, Rule


def events_of(frame: Any, time_column: str) -> list[Any]:
    """Return the rows of a frame in order, as events: fields, time and no vars.

    NaN and all kinds of null are missing values; times and durations become text as ISO 8601 and seconds;
    NumPy's arrays become lists. The time is a column of datetimes, those without a time zone in UTC, or of
    milliseconds, and no field. Raises KeyError for an unknown column, TypeError if it is not a frame, and
    ValueError for a row without a time.
    """
    columns = _columns(frame)
    times = [_time(value, row) for row, value in enumerate(columns.pop(time_column))]
    rows = zip(times, *map(_plain_column, columns.values()), strict=True)
    return [(dict(zip(columns, values, strict=True)), at, None) for at, *values in rows]


def verdicts(frame: Any, rules: Sequence[Rule], fired: Sequence[Fired]) -> Any:
    """Return a frame of the same kind and length, with a column of booleans for each rule.

    A column has the rule's name, or its id if another rule has the same name. A pandas frame has the index of
    the given one.
    """
    names = [rule.name for rule in rules]
    columns = {
        rule.id: (rule.name if names.count(rule.name) == 1 else rule.id, [False] * len(fired))
        for rule in rules
    }
    for row, some in enumerate(fired):
        for rule in some:
            columns[rule.id][1][row] = True
    data = dict(columns.values())
    if _library(frame) == "pandas":
        import pandas as pd  # noqa: PLC0415 -- optional

        return pd.DataFrame(data, index=frame.index, dtype=bool)
    import polars as pl  # noqa: PLC0415 -- optional

    return pl.DataFrame(data, schema=dict.fromkeys(data, pl.Boolean))


def _library(frame: Any) -> str:
    library = type(frame).__module__.partition(".")[0]
    if library not in ("pandas", "polars") or type(frame).__name__ != "DataFrame":
        raise TypeError(f"expected a DataFrame of pandas or polars, got {type(frame).__name__}")
    return library


def _columns(frame: Any) -> dict[str, Collection[Any]]:
    """Return the values of each column as Python objects, None for missing ones."""
    if _library(frame) == "pandas":
        if not frame.columns.is_unique:
            raise ValueError("two columns have the same name")
        # A column of objects keeps integers exact. A row with a float would convert them to floats.
        return {str(name): _objects(frame[name]) for name in frame.columns}
    return {
        name: (frame[name].fill_nan(None) if frame[name].dtype.is_float() else frame[name]).to_list()
        for name in frame.columns
    }


def _objects(column: Any) -> list[Any]:
    """Return the values of a pandas Series, None for missing ones."""
    values: list[Any] = column.astype(object).where(column.notna(), None).tolist()
    return values


_PLAIN: Final = {bool, int, float, str, NoneType}


def _plain_column(values: Collection[Any]) -> Iterable[Any]:
    return values if _PLAIN.issuperset(map(type, values)) else map(_cell, values)


def _cell(value: Any) -> Any:
    try:
        return _plain(value)
    except RecursionError:
        # The detector refuses it, and tells the place.
        return value


def _plain(value: Any) -> Any:
    match value:
        case str():
            return value
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case datetime() | float() if value != value:  # noqa: PLR0124 -- NaT and NaN
            return None
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    return _of_numpy(value)


def _of_numpy(value: Any) -> Any:
    # NumPy and pandas are not imported for a frame of polars, which has none of their values.
    match type(value).__name__:
        case "NAType":
            return None
        case "ndarray" if value.ndim == 1:
            import pandas as pd  # noqa: PLC0415 -- optional

            return [_plain(each) for each in _objects(pd.Series(value))]
        case "ndarray":
            return [_plain(each) for each in value]
        case _:
            return value


def _time(value: Any, row: int) -> float | datetime:
    match value:
        case None:
            raise ValueError(f"row {row} has no time")
        case datetime():
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        case _:
            return value  # type: ignore[no-any-return]  # the detector refuses what is no number
