"""`clock` and its parts: the local time of an event in a zone, such as its hour or weekday."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from importlib import import_module
from math import floor, nan
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

from engine.evaluation.operators.interface import Reading
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, TermOperator
from engine.language.terms import Clock, Term

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_US: Final = 60_000_000
_MICROSECOND: Final = timedelta(microseconds=1)
_BY_MINUTE: Final = {"minute": 60, "clock": 24 * 60}
"""The parts that change each minute, and their periods in minutes."""
_CLOCKS: Final = [f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(60)]
_MINUTES_KEPT: Final = 1024
_ZONES_KEPT: Final = 1024

_VERSION_FILES: Final = ("tzdata.zi", "+VERSION")
"""The files that begin with the version, on Linux and on other systems."""


class Parts(NamedTuple):
    """A local time. It has no parts outside the years 1 to 9999."""

    hour: float = nan
    minute: float = nan
    weekday: float = nan
    day: float = nan
    month: float = nan
    clock: str | None = None


_NONE: Final = Parts()


class LocalTimes(dict[int, Parts | None]):
    """The local times of a zone by minute. Events in the same minute share a look-up."""

    def __init__(self, zone: tzinfo | None) -> None:
        """Without a zone, no time has parts."""
        super().__init__()
        self._zone = zone

    def __missing__(self, minute: int) -> Parts | None:
        """Look up a minute; None if the local time changes within it, because an offset has seconds."""
        if len(self) >= _MINUTES_KEPT:
            self.clear()
        first, last = self.at(minute * MINUTE_US), self.at((minute + 1) * MINUTE_US - 1)
        found = self[minute] = first if first == last else None
        return found

    def at(self, now_us: int) -> Parts:
        """Return the local time of an event."""
        local = self._local(now_us)
        if local is None:
            return _NONE
        clock = f"{local.hour:02}:{local.minute:02}"
        return Parts(local.hour, local.minute, local.isoweekday(), local.day, local.month, clock)

    def steps_us(self, part: str, now_us: int, stops: Sequence[int] | None = None) -> Iterator[int]:
        """Yield the times from `now_us` on just after which a part may change.

        With `stops`, only the minutes in which it becomes one of these matter. They are minutes of the hour,
        or of the day for `clock`, from 0 on, in ascending order.
        """
        while (local := self._local(now_us)) is not None:
            try:
                end_us = now_us + (_next(part, local, stops) - local.replace(tzinfo=None)) // _MICROSECOND - 1
            except OverflowError:
                return
            then = self._local(end_us)
            if then is not None and then.utcoffset() != local.utcoffset():
                # The clocks change before. They never change twice in one day.
                end_us = now_us + bisect_left(
                    range(end_us - now_us), True, key=lambda more: self._changes(now_us, now_us + more + 1)
                )
            yield end_us
            now_us = end_us + 1

    def _changes(self, one_us: int, other_us: int) -> bool:
        one, other = self._local(one_us), self._local(other_us)
        return one is None or other is None or one.utcoffset() != other.utcoffset()

    def _local(self, now_us: int) -> datetime | None:
        try:
            utc = _EPOCH + timedelta(microseconds=now_us)
            return None if self._zone is None else utc.astimezone(self._zone)
        except (OverflowError, ValueError):
            return None


def _next(part: str, local: datetime, stops: Sequence[int] | None) -> datetime:
    """Return the local time at which a part changes next, unless the clocks change before."""
    if part in _BY_MINUTE and stops is not None:
        begun = local.replace(tzinfo=None, second=0, microsecond=0)
        hours = local.hour if part == "clock" else 0
        begun -= timedelta(hours=hours, minutes=local.minute)
        passed = bisect_right(stops, 60 * hours + local.minute)
        return begun + timedelta(minutes=stops[passed] if passed < len(stops) else _BY_MINUTE[part])
    if part in _BY_MINUTE:
        return local.replace(tzinfo=None, second=0, microsecond=0) + timedelta(minutes=1)
    if part == "hour":
        return local.replace(tzinfo=None, minute=0, second=0, microsecond=0) + timedelta(hours=1)
    midnight = local.replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0)
    if part == "month":
        return (midnight.replace(day=1) + timedelta(days=31)).replace(day=1)
    return midnight + timedelta(days=1)


@lru_cache(_ZONES_KEPT)
def local_times(zone: str | None) -> LocalTimes:
    """Return the local times of a zone, by default UTC."""
    if zone is None:
        return LocalTimes(UTC)
    try:
        return LocalTimes(ZoneInfo(zone))
    except (ValueError, OSError, ZoneInfoNotFoundError):
        # It was valid where the rule was made, but this system does not know it.
        return LocalTimes(None)


@cache
def zones_version() -> str:
    """Return the version of the time zones, such as `2025b`; empty if unknown.

    They are those of the system or, if it has none, those of the package tzdata.
    """
    for folder in map(Path, TZPATH):
        if folder.is_dir():
            for name in _VERSION_FILES:
                with suppress(OSError), (folder / name).open(encoding="ascii", errors="replace") as file:
                    return file.readline().removeprefix("# version ").strip()
            return ""
    with suppress(ImportError):
        return str(import_module("tzdata").IANA_VERSION)
    return ""


@values(Clock)
class ClockOperator(TermOperator[Clock]):
    """A part of the event's time."""

    cost_ns = 80

    def kind(self, term: Clock) -> Kind:
        return Kind.TEXT if term.part == "clock" else Kind.NUMBER

    def value(self, term: Clock, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        times = read.constant(local_times(term.zone))
        place = Parts._fields.index(term.part)
        return f"({times}[{read.now} // {MINUTE_US}] or {times}.at({read.now}))[{place}]"

    def steps_us(self, term: Clock, now_us: int, compared: Term | None) -> Iterator[int]:
        return local_times(term.zone).steps_us(term.part, now_us, _stops(term.part, compared))


def _stops(part: str, compared: Term | None) -> list[int] | None:
    """Return the minutes in which a part may become less than, equal to or greater than a constant."""
    if part == "clock" and isinstance(compared, str):
        reached = bisect_left(_CLOCKS, compared)
    elif part == "minute" and isinstance(compared, int | float):
        reached = floor(min(max(compared, -1), 60))
    else:
        return None
    return sorted({0, *(each for each in (reached, reached + 1) if 0 < each < _BY_MINUTE[part])})
