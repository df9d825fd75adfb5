"""Times in microseconds since 1970: special values, and the conversion to milliseconds."""

from typing import Final

NEVER: Final = -(1 << 63)
"""Before any event. Events are within 8.64e18 of 1970."""

FOREVER: Final = (1 << 63) - 1
"""After any event."""


def milliseconds(time_us: int) -> float:
    """Return a time in milliseconds, as an integer if possible."""
    return time_us / 1_000 if time_us % 1_000 else time_us // 1_000
