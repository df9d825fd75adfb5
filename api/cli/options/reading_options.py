"""The options that say how recordings are read."""

import functools
import re
import sys
import zoneinfo
from collections.abc import Callable
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Any, Final

import click

from api.cli.recordings.reading import TIME_FIELDS, ReadingOptions
from api.cli.recordings.rows import COLUMN_TYPES, ColumnType
from engine.patterns.compiled_pattern import PatternError
from engine.patterns.named_groups import NamedGroups


def _column_types(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> dict[str, ColumnType]:
    """Read `--types user=text,n=number`."""
    found: dict[str, ColumnType] = {}
    for part in ",".join(given).split(",") if given else ():
        name, equals, type_ = part.rpartition("=")
        known = [known for known in COLUMN_TYPES if known == type_]
        if not (name and equals and known):
            raise click.BadParameter(f"`{part}`: expected COLUMN=TYPE, with one of {', '.join(COLUMN_TYPES)}")
        found[name] = known[0]
    return found


def _pattern(_context: click.Context, _option: click.Parameter, given: str | None) -> NamedGroups | None:
    if given is None:
        return None
    try:
        pattern = NamedGroups(given)
    except PatternError as error:
        raise click.BadParameter(f"`{given}`: {error}") from None
    if not pattern.names:
        raise click.BadParameter(f"`{given}`: it needs named groups, such as (?P<time>[^ ]+)")
    return pattern


_OFFSET: Final = re.compile(r"([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")


def _zone(_context: click.Context, _option: click.Parameter, given: str | None) -> tzinfo:
    """Read `--time-zone Asia/Tokyo` or `--time-zone +09:00`."""
    if given is None:
        return UTC
    if found := _OFFSET.fullmatch(given):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(given)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise click.BadParameter(
            f"`{given}`: expected a zone such as Europe/Berlin, or an offset such as +09:00"
        ) from None


_OPTIONS = (
    click.option(
        "--time-field",
        metavar="NAME",
        help="Field with the event's time: ISO 8601, a number since 1970 (seconds, milliseconds, "
        "microseconds or nanoseconds, by its size), or as syslog and web servers write it.  "
        f"[default: the first of {', '.join(TIME_FIELDS)} in the first event]",
    ),
    click.option(
        "--time-zone",
        "zone",
        metavar="ZONE",
        callback=_zone,
        help="Zone of times without one, such as Europe/Berlin or +09:00. A time without a year is in the "
        "last year in which it is at most a day after the file was written or, on a pipe, after now.  "
        "[default: UTC]",
    ),
    click.option(
        "--time-format", metavar="FORMAT", help="How times are written, such as `%d.%m.%Y %H:%M:%S`."
    ),
    click.option(
        "--old-times", is_flag=True, help="Accept numbers that mean times before 1980 without asking."
    ),
    click.option(
        "--types",
        "types",
        metavar="COLUMN=TYPE[,…]",
        multiple=True,
        callback=_column_types,
        help=f"Type of a column ({', '.join(COLUMN_TYPES)}), instead of the one its cells suggest.",
    ),
    click.option(
        "--pattern",
        metavar="REGEX",
        callback=_pattern,
        help="Read lines of text: the named groups of this regular expression (RE2) are the fields, such as "
        "`^(?P<time>.{15}) .* Failed password for (?:invalid user )?(?P<user>.*) from (?P<ip>\\S+) port`. "
        "Other lines are skipped and counted.",
    ),
    click.option(
        "--records",
        metavar="PATH",
        help="Read a JSON document whose array at PATH holds the events, such as `Records`. Events are "
        "numbered from 1, as lines are.",
    ),
    click.option(
        "--strict", is_flag=True, help="Fail at the first line that cannot be read, instead of skipping it."
    ),
)
_READ: Final = ("time_field", "time_format", "types", "pattern", "zone", "records", "strict")
"""The options that are members of ReadingOptions, by name."""


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command receives `reading`."""

    @functools.wraps(command)
    def with_reading(*, old_times: bool, **given: Any) -> None:
        named = {name: given.pop(name) for name in _READ}
        if named["pattern"] is not None and named["records"] is not None:
            raise click.UsageError("`--pattern` and `--records` exclude each other.")
        reading = ReadingOptions(
            **named,
            tell=functools.partial(click.echo, err=True),
            accept_old=lambda finding: old_times or _confirmed(finding),
        )
        command(reading=reading, **given)

    for option in reversed(_OPTIONS):
        with_reading = option(with_reading)
    return with_reading


def _confirmed(finding: str) -> bool:
    """Ask whether an implausible time is right. Without a terminal, the answer is no."""
    return sys.stdin.isatty() and click.confirm(f"{finding}. Is that right?", err=True)
