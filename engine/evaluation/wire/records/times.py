"""The times of records: where one stands in a record, and the ways in which it may be written."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from engine.evaluation.facts.look_up import split_name
from engine.evaluation.stamps import LATEST_US
from engine.language.diagnostics import Entry, Refusal

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECONDS_BELOW: Final = 10**11
_MILLISECONDS_BELOW: Final = 10**14
_MICROSECONDS_BELOW: Final = 10**17
"""Below these numbers a time is in seconds, milliseconds and microseconds; above, in nanoseconds."""


def time_in(name: str) -> Callable[[Mapping[str, Any]], float]:
    """Return what gives the time of a record in milliseconds, whole microseconds, by the name of its field.

    It raises Refusal 1001 if the record has no such field, or no time in it.
    """
    look = split_name(name).look if "." in name else None

    def time_ms(record: Mapping[str, Any]) -> float:
        given = record.get(name) if look is None else look(record)
        found = _time_us(given)
        if found is None or abs(found) > LATEST_US:
            what = "is no time in ISO 8601 and no number of seconds since 1970"
            raise Refusal(Entry(1001, f"`{name}` {'is missing' if given is None else what}"))
        return round(found) / 1_000

    return time_ms


def _time_us(given: Any) -> float | None:
    """Return a time in microseconds, None if the value is no time."""
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            return None
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if not isinstance(given, int | float) or isinstance(given, bool):
        return None
    size = abs(given)
    if size < _SECONDS_BELOW:
        return given * 1_000_000
    if size < _MILLISECONDS_BELOW:
        return given * 1_000
    if size < _MICROSECONDS_BELOW:
        return given
    # In nanoseconds. The quotient of a number past a double's range would be none.
    return given / 1_000 if size <= LATEST_US * 1_000 else None
