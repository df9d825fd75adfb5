"""`time`: the seconds since 1970 of a date or time of RFC 3339 in a fact."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import nan
from typing import Any, Final

from engine.evaluation.operators.interface import Found, Reading, Triggers
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import TermOperator
from engine.evaluation.paths import Path
from engine.language.terms import Time

_RFC_3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))?)?",
    re.ASCII,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_CYCLE_YEARS: Final = 400
_CYCLE: Final = timedelta(days=146_097)
"""The calendar repeats after these years, which are so long."""

_CHARS_KEPT_MAX: Final = 40
_KEPT: Final = 1024
"""This many times are kept, of texts up to this length: rules that ask for one time read its text once."""


def seconds(text: Any) -> float:
    """Return the seconds since 1970 of a text; NaN if it is no date or time of RFC 3339.

    Without a zone, UTC is meant. What is finer than a microsecond is cut. There are no leap seconds.
    """
    if type(text) is not str:
        return nan
    return _seconds_kept(text) if len(text) <= _CHARS_KEPT_MAX else _seconds(text)


def _seconds(text: str) -> float:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        return nan
    *calendar, fraction, sign, hours, minutes = found.groups("0")
    year, month, day, hour, minute, second = map(int, calendar)
    # RFC 3339 has a year 0, and Python has none.
    cycles, year = divmod(year, _CYCLE_YEARS)
    try:
        then = datetime(year + _CYCLE_YEARS, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return nan
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    since = then - _EPOCH + (cycles - 1) * _CYCLE + (offset if sign == "-" else -offset)
    return (since // _MICROSECOND + int(fraction[:6].ljust(6, "0"))) / 1_000_000


_seconds_kept: Final = lru_cache(_KEPT)(_seconds)


@values(Time)
class TimeOperator(TermOperator[Time]):
    """The time that a fact names."""

    cost_ns = 500
    calls = (seconds,)

    def value(self, term: Time, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        return f"seconds({read.fact(term.fact)})"

    def present_at(self, term: Time, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- under all
        return triggers.present(term.fact)
