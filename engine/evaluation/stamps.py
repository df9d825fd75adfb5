"""Stamps: the time and the number of an event as one integer.

Later events have larger stamps, even at the same time. So one comparison tells whether an event came after
another, after the birth of a rule, or inside a window.
"""

from typing import Final

NUMBER_BITS: Final = 40
"""A stamp is the time in microseconds, followed by this many bits for the number of the event."""

EVENT: Final = (1 << NUMBER_BITS) - 1
"""The bits of the number."""

WITHIN_BITS: Final = 23
"""The bits after the number of an event in the ranks by which slices and similar entries are evicted."""

MICROSECOND: Final = 1 << NUMBER_BITS
MILLISECOND: Final = 1_000 << NUMBER_BITS

EARLIEST_US: Final = -8_640_000_000_000_000_000
LATEST_US: Final = -EARLIEST_US
"""The times that an event may have: the range of dates in ECMAScript."""

UNSET: Final = (EARLIEST_US - 1) << NUMBER_BITS
"""A stamp before all events. It is the clock of a detector without events."""

NEVER: Final = -(1 << 104)
"""A stamp before UNSET: event times are within 8.64e18 microseconds of 1970."""

LATEST: Final = -NEVER
"""After every stamp."""


def stamp_of(time_us: int, number: int) -> int:
    """Return the stamp of an event; with number 0, the stamp before all events of that time."""
    return (time_us << NUMBER_BITS) + number


def time_of(stamp: int) -> int:
    """Return the time of a stamp in microseconds."""
    return stamp >> NUMBER_BITS
