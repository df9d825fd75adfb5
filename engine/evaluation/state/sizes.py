"""What a detector's keys weigh: an estimate, in bytes, of the memory that they and their histories take.

The bound on that memory decides which keys are kept, so the estimate is a formula of the project's own: it
depends on nothing but what is remembered, neither on the version of Python nor on the memory at hand. The
numbers are those of CPython on 64 bits, with each container as full as it is on average.
"""

from typing import Any, Final

SLOT_BYTES: Final = 150
"""Of each live key: its places in the arrays of its table and in the dict of its shard, and its number."""

ENTRY_BYTES: Final = 150
"""Of each entry of a column with few: its places in two dicts, and its time."""

PAGE_BYTES: Final = 2150
"""Of each page of a column with many entries, however many of them are in it."""

TICK_BYTES: Final = 110
"""Of each event at which a column has kept something for the next one of a slice."""

_TUPLE_BYTES: Final = 56
_REFERENCE_BYTES: Final = 8
_FLOAT_BYTES: Final = 24
_INT_BYTES: Final = 32
_ASCII_BYTES: Final = 52
_DIGITS_BYTES: Final = 40
_TEXT_BYTES: Final = 76
_LATIN_END, _BASIC_END = 1 << 8, 1 << 16


def key_bytes(key: Any) -> int:
    """Give the size of a key: a text, a number, its digits, or a tuple of those.

    Of each other scalar there is one object for all keys.
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
