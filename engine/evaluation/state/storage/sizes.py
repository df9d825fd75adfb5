"""Estimates the memory that a detector's keys and their histories take, in bytes.

The bound on this memory decides which keys are evicted, so the estimate must be reproducible. It depends only
on the state, not on the version of Python or the machine. The constants are those of CPython on 64 bits, with
containers at their average load.
"""

from typing import Any, Final

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

KEY_BYTES_MAX: Final = 3600
"""The most for a key or value of one fact: an integer of 4 000 digits. A text takes at most 1 100."""

INTERNED_BYTES: Final = 130
"""For each different value in rows of values, without the value: its entry in a dict, and its number."""

_ARRAY_BYTES: Final = 100
_TUPLE_BYTES: Final = 56
_REFERENCE_BYTES: Final = 8
_FLOAT_BYTES: Final = 24
_INT_BYTES: Final = 32
_ASCII_BYTES: Final = 52
_DIGITS_BYTES: Final = 40
_TEXT_BYTES: Final = 76
_LATIN_END, _BASIC_END = 1 << 8, 1 << 16


def steps_bytes(length: int) -> int:
    """Return the size of this many numbers in an array that grows."""
    return STEP_BYTES * (length // RECORD_STEP + 1)


def array_bytes(length: int) -> int:
    """Return the size of an array of this many numbers."""
    return _ARRAY_BYTES + 8 * length


def key_bytes(key: Any) -> int:
    """Return the size of a key: a text, a number, its digits, or a tuple of those.

    Any other scalar counts like an integer.
    """
    kind = type(key)
    if kind is str:
        if key.isascii():
            return _ASCII_BYTES + len(key)
        widest = ord(max(key))
        wide = 1 if widest < _LATIN_END else 2 if widest < _BASIC_END else 4
        return _TEXT_BYTES + wide * len(key)
    if kind is tuple:
        return _TUPLE_BYTES + _REFERENCE_BYTES * len(key) + sum(map(key_bytes, key))
    if kind is bytes:
        return _DIGITS_BYTES + len(key)
    return _FLOAT_BYTES if kind is float else _INT_BYTES
