"""The option that says how late events of a recording may come."""

import re
from collections.abc import Callable
from typing import Final

import click

from engine.language.literals import UNITS_MS, duration_seconds

_DURATION: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(UNITS_MS)})")


def duration_us(_context: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    """Read a duration, such as that of `--max-late 10s`, in microseconds."""
    if given is None:
        return None
    found = _DURATION.fullmatch(given)
    if found is None:
        raise click.BadParameter(f"`{given}`: expected a duration such as 500ms, 10s, 5m or 90d")
    return round(duration_seconds(found[1], found[2]) * 1_000_000)


def lateness_option(otherwise: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option, whose help ends with what happens without it; the command receives `late_us_max`."""
    return click.option(
        "--max-late",
        "late_us_max",
        metavar="DURATION",
        callback=duration_us,
        help="Sort the events of all files by time; in its file, each comes at most this late. "
        f"Events wait so long in memory.  [default: {otherwise}]",
    )
