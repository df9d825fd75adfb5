"""Parses the times of recorded events as logs write them."""

import re
from calendar import month_abbr
from datetime import UTC, datetime, timedelta
from typing import Final, TypeGuard

from engine.language.microseconds import microseconds

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\s*")

_WEB_SERVER: Final = re.compile(
    r"([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9]{2}:[0-9]{2}:[0-9]{2}) ([+-][0-9]{4})"
)
_SYSLOG: Final = re.compile(r"([A-Z][a-z]{2}) +([0-9]{1,2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)")
_MONTHS: Final = {month: number for number, month in enumerate(month_abbr)}
_HAS_YEAR: Final = re.compile(r"(?:[^%]|%[^YyGcx])*%[YyGcx]")
"""Matches a format that has the year, as `%c` has, and `%%Y` has not."""
_MICROSECOND: Final = timedelta(microseconds=1)
_KNOWN: Final = "a time (ISO 8601, seconds, milliseconds, or as syslog and web servers write it)"

_MILLISECONDS_FROM: Final = 100_000_000_000
"""Smaller numbers are seconds (up to the year 5138), others milliseconds (from the year 1973)."""

_TIME_MS_MAX: Final = 8_640_000_000_000_000
"""What the service accepts, either way."""


class NotATimeError(ValueError):
    """A value is not a time; the message says what was expected."""


class TimeParser:
    """Parses the times of one recording.

    `form` is their format, as for `strptime`. Without it, a time may be

    * ISO 8601, in UTC unless it names a zone
    * a number: milliseconds if it is large or the field's name ends in `_ms`, otherwise seconds
    * `10/Oct/2000:13:55:36 -0700`, as web servers write it
    * `Oct 10 13:55:36`, as syslog writes it: UTC, in the last year in which it is at most `latest_us`
    """

    def __init__(self, form: str | None = None, *, latest_us: int) -> None:
        self._form = form
        self._latest_us = latest_us

    def microseconds_of(self, value: object, field: str) -> int:
        """Return a time in microseconds since 1970. Raises NotATimeError, which names the field."""
        if self._form is None and is_number(value):
            return _from_number(value, field)
        try:
            return self._from_text(str(value))
        except (KeyError, ValueError, OverflowError):
            expected = _KNOWN if self._form is None else f"a time like {self._form}"
            raise NotATimeError(f"`{field}`: expected {expected}, got {_shown(value)}") from None

    def _from_text(self, text: str) -> int:
        if self._form is not None:
            return self._from_form(text, self._form)
        if found := _SYSLOG.fullmatch(text):
            month, day, clock = found.groups()
            return self._in_last_year(datetime.fromisoformat(f"2000-{_MONTHS[month]:02}-{day:0>2}T{clock}"))
        if found := _WEB_SERVER.fullmatch(text):
            day, month, year, clock, zone = found.groups()
            text = f"{year}-{_MONTHS[month]:02}-{day}T{clock}{zone}"
        return _since_epoch(datetime.fromisoformat(text.strip()))

    def _from_form(self, text: str, form: str) -> int:
        if _HAS_YEAR.match(form):
            return _since_epoch(datetime.strptime(text, form))  # noqa: DTZ007 -- the form may have a zone
        # A leap year, so that February 29 is one of its days.
        return self._in_last_year(datetime.strptime(f"2000 {text}", f"%Y {form}"))  # noqa: DTZ007

    def _in_last_year(self, moment: datetime) -> int:
        """Return a time without a year as that of the last year in which it is not too late."""
        latest = _EPOCH + timedelta(microseconds=self._latest_us)
        year = latest.astimezone(moment.tzinfo or UTC).year
        while True:
            try:
                time_us = _since_epoch(moment.replace(year=year))
                if time_us <= self._latest_us:
                    return time_us
            except ValueError:
                # The year has no February 29.
                pass
            year -= 1


def is_number(value: object) -> TypeGuard[str | float]:
    """Return whether a time is a count of seconds or milliseconds, not a date."""
    return type(value) in (int, float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def iso(time_us: int) -> str:
    """Return a time as ISO 8601 in UTC, to the millisecond; as milliseconds beyond the calendar's years."""
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us / 1000:g} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _from_number(value: str | float, field: str) -> int:
    number = float(value) if isinstance(value, str) else value
    if not -_TIME_MS_MAX <= number <= _TIME_MS_MAX:
        raise NotATimeError(f"`{field}`: the time {_shown(value)} is out of range")
    milliseconds = field.endswith("_ms") or abs(number) >= _MILLISECONDS_FROM
    return microseconds(number, 1_000 if milliseconds else 1_000_000)


def _since_epoch(moment: datetime) -> int:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _shown(value: object) -> str:
    return f"`{str(value)[:40]}`"
