"""Parses the time of a recorded event: ISO 8601, seconds or milliseconds."""

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\s*")

_MILLISECONDS_FROM: Final = 100_000_000_000
"""Smaller numbers are seconds (up to the year 5138), others milliseconds (from the year 1973)."""

_TIME_US_MAX: Final = 8_640_000_000_000_000_000
"""What the service accepts: 8.64e15 milliseconds either way."""


class NotATimeError(ValueError):
    """A value is not a time; the message says what was expected."""


def microseconds_of(value: object, field: str) -> int:
    """Give a time in microseconds since 1970.

    Text in ISO 8601 is UTC unless it names a zone. A number is seconds or milliseconds according to its
    size, and always milliseconds if the field's name ends in `_ms`. Raises NotATimeError.
    """
    match value:
        case bool():
            pass
        case int():
            return _from_number(Decimal(value), field)
        case float() if math.isfinite(value):
            # repr gives the decimal as it was written; binary multiplication would not.
            return _from_number(Decimal(repr(value)), field)
        case str() if _NUMBER.fullmatch(value):
            return _from_number(Decimal(value.strip()), field)
        case str():
            return _from_iso(value)
        case _:
            pass
    raise NotATimeError(f"expected a time (ISO 8601, seconds or milliseconds), got {_shown(value)}")


def is_number(value: object) -> bool:
    """Tell whether a time is a count of seconds or milliseconds, not a date."""
    return not isinstance(value, str) or _NUMBER.fullmatch(value) is not None


def iso(time_us: int) -> str:
    """Give a time as ISO 8601 in UTC, to the millisecond; as milliseconds beyond the calendar's years."""
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us / 1000:g} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _from_number(number: Decimal, field: str) -> int:
    milliseconds = field.endswith("_ms") or abs(number) >= _MILLISECONDS_FROM
    time_us = round(number * (1_000 if milliseconds else 1_000_000))
    if abs(time_us) > _TIME_US_MAX:
        raise NotATimeError(f"the time {_shown(number)} is out of range")
    return time_us


def _from_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise NotATimeError(
            f"expected a time (ISO 8601, seconds or milliseconds), got {_shown(text)}"
        ) from None


def _shown(value: object) -> str:
    return f"`{str(value)[:40]}`"
