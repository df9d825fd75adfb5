"""The options that say how recordings are read."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from api.cli.recordings.columns import COLUMN_TYPES, ColumnType
from api.cli.recordings.reading import TIME_FIELDS, ReadingOptions
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


_OPTIONS = (
    click.option(
        "--time-field",
        metavar="NAME",
        help="Field with the event's time: ISO 8601, seconds, milliseconds, or as syslog and web servers "
        f"write it.  [default: the first of {', '.join(TIME_FIELDS)} in the first event]",
    ),
    click.option(
        "--time-format", metavar="FORMAT", help="How times are written, such as `%d.%m.%Y %H:%M:%S`."
    ),
    click.option(
        "--old-times", is_flag=True, help="Accept numbers that mean a time before 1980 without asking."
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
        "`^(?P<time>.{15}) .* Failed password for (?P<user>\\S+) from (?P<ip>\\S+)`.",
    ),
)


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command receives `reading`."""

    @functools.wraps(command)
    def with_reading(
        *,
        time_field: str | None,
        time_format: str | None,
        old_times: bool,
        types: dict[str, ColumnType],
        pattern: NamedGroups | None,
        **given: Any,
    ) -> None:
        reading = ReadingOptions(
            time_field,
            types=types,
            tell=functools.partial(click.echo, err=True),
            accept_old=lambda finding: old_times or _confirmed(finding),
            time_format=time_format,
            pattern=pattern,
        )
        command(reading=reading, **given)

    for option in reversed(_OPTIONS):
        with_reading = option(with_reading)
    return with_reading


def _confirmed(finding: str) -> bool:
    """Ask whether an implausible time is right. Without a terminal, the answer is no."""
    return sys.stdin.isatty() and click.confirm(f"{finding}. Is that right?", err=True)
