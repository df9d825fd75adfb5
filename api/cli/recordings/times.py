"""Parses the times of recorded events as logs write them."""

import re
import time
from bisect import bisect_right
from calendar import month_abbr
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import ROUND_FLOOR, Decimal
from typing import Any, Final, TypeGuard

from engine.language.durations import microseconds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\s*")
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]{1,30}\s*")

_CLOCK: Final = r"([0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?)"
_WEB_SERVER: Final = re.compile(rf"([0-9]{{2}})/([A-Z][a-z]{{2}})/([0-9]{{4}}):{_CLOCK} ([+-][0-9]{{4}})")
_ERROR_LOG: Final = re.compile(
    rf"(?:[A-Z][a-z]{{2}} )?([A-Z][a-z]{{2}}) +([0-9]{{1,2}}) {_CLOCK} (?:(?:UTC|GMT) )?([0-9]{{4}})"
)
_SLASHES: Final = re.compile(rf"([0-9]{{4}})/([0-9]{{2}})/([0-9]{{2}}) {_CLOCK}")
_SYSLOG: Final = re.compile(rf"([A-Z][a-z]{{2}}) +([0-9]{{1,2}}) {_CLOCK}")
_ZONE_APART: Final = re.compile(r"(.*[0-9]) (?:([+-][0-9]{2}:?[0-9]{2})|UTC|GMT|Z)")
_MONTHS: Final = {month: number for number, month in enumerate(month_abbr)}
_HAS_YEAR: Final = re.compile(r"(?:[^%]|%[^YyGcx])*%[YyGcx]")
"""Matches a format with a year, such as `%c`, but not `%%Y`."""
_MICROSECOND: Final = timedelta(microseconds=1)
_KNOWN: Final = "a time (ISO 8601, a number since 1970, or as syslog and web servers write it)"

_AHEAD_MAX: Final = timedelta(days=1)
"""How far ahead a time without a year may be, because of another zone or a fast clock."""

_MICROSECONDS: Final = (1_000_000, 1_000, 1)
"""The microseconds of s, ms and µs; ns are finer."""
_FINER_FROM: Final = (100_000_000_000, 100_000_000_000_000, 100_000_000_000_000_000)
"""A larger number is in the next finer unit. Each unit covers the years 1973 to 5138."""
_MILLISECONDS: Final = _FINER_FROM[:2]
_FINER: Final = ("_us", "_ns")
_SUFFIXES: Final = {"_ms": 1, "_us": 2, "_ns": 3}
"""The coarsest unit of a field whose name has this ending."""

_TIME_US_MAX: Final = 8_640_000_000_000_000_000
"""The greatest absolute time that the service accepts."""


class NotATimeError(ValueError):
    """A value is not a time; the message says what was expected."""


def now_us() -> int:
    """Return the time of this machine in microseconds since 1970."""
    return time.time_ns() // 1_000


class TimeParser:
    """Parses the times of one recording.

    `form` is their format, as for `strptime`. Without it, a time may be

    * ISO 8601; `2005/12/04 04:47:44`, too
    * a number since 1970: its size distinguishes seconds, milliseconds, microseconds and nanoseconds; a field
      name that ends in `_ms`, `_us` or `_ns` excludes coarser units
    * `10/Oct/2000:13:55:36 -0700` or `Sun Dec 04 04:47:44 2005`, as web servers write it
    * `Oct 10 13:55:36`, as syslog writes it

    A time without a zone is in `zone`. A time without a year is in the last year in which it is at most a day
    after `latest_us()`, so that neither another zone nor a line that was just written leads to the previous
    year.
    """

    def __init__(
        self, form: str | None = None, *, latest_us: Callable[[], int] = now_us, zone: tzinfo = UTC
    ) -> None:
        self._form = form
        self._latest_us = latest_us
        self._zone = zone

    def microseconds_of(self, value: object, field: str) -> int:
        """Return a time in microseconds since 1970. Raises NotATimeError, which names the field."""
        if self._form is None:
            # Most recordings have whole milliseconds.
            if (
                type(value) is int
                and _MILLISECONDS[0] <= value < _MILLISECONDS[1]
                and field[-3:] not in _FINER
            ):
                return value * 1_000
            if type(value) is str and value[10:11] == "T":
                # No other form has a letter there.
                try:
                    return self._since_epoch(datetime.fromisoformat(value))
                except (ValueError, OverflowError):
                    pass
            if is_number(value):
                return _from_number(value, field)
        try:
            return self._from_text(str(value))
        except (KeyError, ValueError, OverflowError):
            expected = _KNOWN if self._form is None else f"a time like {self._form}"
            raise NotATimeError(f"`{field}`: expected {expected}, got {_shown(value)}") from None

    def many(self, values: Sequence[Any], field: str) -> list[int]:
        """Return `microseconds_of` each value; faster if all are ISO 8601 with a zone."""
        if self._form is None:
            try:
                # No number, nor another form, is ISO 8601 with a zone.
                return [(datetime.fromisoformat(value) - _EPOCH) // _MICROSECOND for value in values]
            except (ValueError, TypeError):
                pass
        return [self.microseconds_of(value, field) for value in values]

    def _from_text(self, text: str) -> int:
        if self._form is not None:
            return self._from_form(text, self._form)
        text = text.strip()
        if found := _SYSLOG.fullmatch(text):
            month, day, clock = found.groups()
            return self._in_last_year(datetime.fromisoformat(f"2000-{_MONTHS[month]:02}-{day:0>2}T{clock}"))
        if found := _WEB_SERVER.fullmatch(text):
            day, month, year, clock, zone = found.groups()
            text = f"{year}-{_MONTHS[month]:02}-{day}T{clock}{zone}"
        elif found := _ERROR_LOG.fullmatch(text):
            month, day, clock, year = found.groups()
            is_utc = "UTC" in text or "GMT" in text
            text = f"{year}-{_MONTHS[month]:02}-{day:0>2}T{clock}{'Z' if is_utc else ''}"
        elif found := _SLASHES.fullmatch(text):
            text = "{}-{}-{}T{}".format(*found.groups())
        elif found := _ZONE_APART.fullmatch(text):
            text = found[1] + (found[2] or "Z")
        return self._since_epoch(datetime.fromisoformat(text))

    def _from_form(self, text: str, form: str) -> int:
        if _HAS_YEAR.match(form):
            return self._since_epoch(datetime.strptime(text, form))  # noqa: DTZ007 -- the form may have a zone
        # 2000 is a leap year, so that February 29 is valid.
        return self._in_last_year(datetime.strptime(f"2000 {text}", f"%Y {form}"))  # noqa: DTZ007

    def _in_last_year(self, moment: datetime) -> int:
        """Return a time without a year, in the last year in which it is not too late."""
        latest = _EPOCH + timedelta(microseconds=self._latest_us()) + _AHEAD_MAX
        year = latest.astimezone(moment.tzinfo or self._zone).year
        while True:
            try:
                time_us = self._since_epoch(moment.replace(year=year))
                if time_us <= (latest - _EPOCH) // _MICROSECOND:
                    return time_us
            except ValueError:
                # The year has no February 29.
                pass
            year -= 1

    def _since_epoch(self, moment: datetime) -> int:
        return ((moment if moment.tzinfo else moment.replace(tzinfo=self._zone)) - _EPOCH) // _MICROSECOND


def is_number(value: object) -> TypeGuard[str | float]:
    """Return whether a time is a number since 1970, not a date."""
    return type(value) in (int, float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def iso(time_us: int) -> str:
    """Return a time as ISO 8601 in UTC, to the millisecond; as milliseconds beyond the calendar's years."""
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us / 1000:g} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _from_number(value: str | float, field: str) -> int:
    """Return a number of s, ms, µs or ns in microseconds, rounded; nanoseconds are cut off."""
    written = value
    if isinstance(value, str):
        # A double cannot hold all nanoseconds.
        value = int(value) if _INTEGER.fullmatch(value) else float(value)
    if not -_TIME_US_MAX * 1_000 <= value <= _TIME_US_MAX * 1_000:
        raise NotATimeError(f"`{field}`: the time {_shown(written)} is out of range")
    unit = max(bisect_right(_FINER_FROM, abs(value)), _SUFFIXES.get(field[-3:], 0))
    if unit < len(_MICROSECONDS):
        return microseconds(value, _MICROSECONDS[unit])
    # Nanoseconds.
    return int((Decimal(value) / 1_000).to_integral_value(rounding=ROUND_FLOOR))


def _shown(value: object) -> str:
    return f"`{str(value)[:40]}`"
