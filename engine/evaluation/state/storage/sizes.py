"""Estimates the memory that a detector's keys and their histories take, in bytes.

The bound on this memory decides which keys are evicted, so the estimate must be reproducible. It depends only
on the state, not on the version of Python or the machine. The constants are those of CPython on 64 bits, with
containers at their average load.
"""

from typing import Final

SLOT_BYTES: Final = 150
"""For each live key: its entries in the arrays of its table and in the dict of its shard, and its slot."""

ENTRY_BYTES: Final = 150
"""For each entry of a column that is a dict: its entries in two dicts, and its time."""

PAGE_BYTES: Final = 2150
"""For each page of a paged column, however many entries it has."""

TICK_BYTES: Final = 110
"""For each entry in the `ticks` of a column."""

STARTS_BYTES: Final = 150
"""For each slot in `Starts`: its entry in a dict, and a tuple."""

START_BYTES: Final = 40
"""For each time in the tuple."""

RECORD_BYTES: Final = 170
"""For each record that is an object, an array or a dict: its entry in a dict, and the object without what it
holds."""

RECORD_STEP: Final = 16
STEP_BYTES: Final = 8 * RECORD_STEP
"""The numbers in an array are counted in steps of this many."""

VALUE_BYTES: Final = 130
"""For each value in a record of values, without the value: its entry in a dict, and its time."""

INTERNED_BYTES: Final = 130
"""For each different value in rows of values, without the value: its entry in a dict, and its number."""

_ARRAY_BYTES: Final = 100


def steps_bytes(length: int) -> int:
    """Return the size of this many numbers in an array that grows."""
    return STEP_BYTES * (length // RECORD_STEP + 1)


def array_bytes(length: int) -> int:
    """Return the size of an array of this many numbers."""
    return _ARRAY_BYTES + 8 * length
