"""The names of the time zones that the system or the package tzdata has."""

from functools import cache
from typing import Final
from zoneinfo import available_timezones

_OF_THIS_MACHINE: Final = {"localtime", "Factory"}
"""No names of places: what they stand for depends on how the machine is set up."""


@cache
def zones() -> frozenset[str]:
    """Return all names, such as `Europe/Berlin`. The first call reads a few hundred files."""
    return frozenset(available_timezones() - _OF_THIS_MACHINE)
