"""The wall clock."""

import time


def wall_clock_us() -> int:
    """Return the current time, in microseconds since 1970."""
    return time.time_ns() // 1_000
