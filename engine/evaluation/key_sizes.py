"""Estimates the memory that a key of a slice takes, in bytes.

The bound on memory decides which slices are evicted, so the estimate depends only on the key. The constants
are those of 64-bit CPython.
"""

from typing import Any, Final

KEY_BYTES_MAX: Final = 3600
"""The maximum size of a key or value of one fact: an integer of 4 000 digits. A text takes at most 1 100."""

_TUPLE_BYTES: Final = 56
_REFERENCE_BYTES: Final = 8
_NUMBER_BYTES: Final = 32
"""The size of integers and doubles, because 7 and 7.0 are the same key."""
_ASCII_BYTES: Final = 52
_DIGITS_BYTES: Final = 40
_TEXT_BYTES: Final = 76
_LATIN_END, _BASIC_END = 1 << 8, 1 << 16


def key_bytes(key: Any) -> int:
    """Return the size of a key: a text, a number or another scalar, its digits, or a tuple of those."""
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
    return _NUMBER_BYTES


PLAIN_MAX: Final = 1 << 63
"""Smaller numbers all have the same size."""


def value_bytes(value: Any) -> int:
    """Return the size of a stored text, number or boolean. Equal numbers have equal sizes."""
    if type(value) is str:
        return key_bytes(value)
    if -PLAIN_MAX < value < PLAIN_MAX:
        return _NUMBER_BYTES
    return _NUMBER_BYTES + (int(value).bit_length() >> 3)
