"""The wall clock."""

import time

from snapshots.clock import wall_clock_us


def test_it_counts_microseconds_since_1970() -> None:
    before = time.time()
    assert before - 1 <= wall_clock_us() / 1_000_000 <= time.time() + 1
