"""Values of events at evaluation: typed equality, and keys.

None stands for a missing value: the event has JSON `null`, or not the fact at all.
"""

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from struct import Struct
from typing import Any, Final

Event = tuple[Mapping[str, Any], float, Mapping[str, Any] | None]
"""Fields, timestamp in milliseconds, vars."""

TRUE_KEY: Final = ("true",)
FALSE_KEY: Final = ("false",)
"""The keys of booleans. In Python, `True == 1`; as JSON values, they differ."""


KEY_CHARS_MAX: Final = 256
"""The key of a longer text is its SHA-256."""

LONG_TEXT: Final = "text"
_LARGE_NUMBER: Final = "number"
_PLAIN_NUMBER_MAX: Final = 1 << 16
_DECIMAL_NUMBER_MAX: Final = 1 << 60
"""Floats from here on are whole. Python refuses to convert numbers of thousands of digits to decimal."""

_DOUBLE: Final = Struct("<cd")
_DOUBLE_MARK: Final = b"f"
"""The first byte of the key of a double. The keys of other numbers begin with a digit or a minus sign."""


def equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal: types must be equal, numbers by value, containers deeply."""
    kind = type(left)
    if kind is int or kind is float:
        other = type(right)
        return (other is int or other is float) and bool(left == right)
    if kind is not type(right):
        return False
    if kind is list:
        return len(left) == len(right) and all(map(equal, left, right))
    if kind is dict:
        return left.keys() == right.keys() and all(equal(value, right[name]) for name, value in left.items())
    return bool(left == right)


def holds(array: Any, value: Any) -> bool:
    """Return whether `array` is an array with an element that equals `value`."""
    return type(array) is list and any(equal(element, value) for element in array)


def key_of(value: Any) -> Any:
    """Return the hashable form of a scalar, with `1` equal to `1.0` but not to `true`; None for other values.

    Python's hashes of numbers are predictable, so a caller could send thousands that collide in a dict or
    set. Small whole numbers are too few for that. All others are represented by bytes, whose hash is not
    predictable: their digits, or the double.
    """
    kind = type(value)
    if kind is str:
        return value
    if kind is int or kind is float:
        if kind is float and not value.is_integer():
            return _DOUBLE.pack(_DOUBLE_MARK, value)
        if -_PLAIN_NUMBER_MAX < value < _PLAIN_NUMBER_MAX:
            return value
        if -_DECIMAL_NUMBER_MAX < value < _DECIMAL_NUMBER_MAX:
            return b"%d" % value
        return (_LARGE_NUMBER, hex(int(value)))
    if kind is bool:
        return TRUE_KEY if value else FALSE_KEY
    return None


def slice_key_of(value: Any) -> Any:
    """Return `key_of` a scalar for storage. A long text has its digest, so that keys stay small."""
    if type(value) is str and len(value) > KEY_CHARS_MAX:
        return (LONG_TEXT, _digest(value))
    return key_of(value)


_RECENT: Final[list[tuple[tuple[str, str], ...]]] = [()]
"""The most recent long texts, with their digests."""

_RECENT_MAX: Final = 4


def _digest(text: str) -> str:
    """Return the SHA-256 of a text, computed once for all paths with this key at one event.

    The cache compares by identity, because comparing equal texts takes about as long as the digest.
    """
    for known, digest in _RECENT[0]:
        if known is text:
            return digest
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    _RECENT[0] = ((text, digest), *_RECENT[0][: _RECENT_MAX - 1])
    return digest


MOST_DOUBLED: Final = (1 << 1024) - (1 << 970) - 1
"""The largest integer that can be converted to a double. Larger ones overflow."""


def double(value: Any) -> float | None:
    """Return a number as a double; None for other values, and for numbers out of range."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is not int:
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def scaled(value: Any, times: float) -> float | None:
    """Return the product of a number and a factor, as doubles; None where `double` returns it."""
    number = double(value)
    return None if number is None else number * times


def part_of_key(key: Any) -> Any:
    """Return the form of a key, or of None, inside a tuple of keys.

    The hash of a tuple of numbers is predictable, even of small ones. The hash of bytes is not.
    """
    return b"%d" % key if type(key) is int or type(key) is float else key


def scalar_of(key: Any) -> Any:
    """Return the scalar of a key or a part of a key, which is not that of a long text."""
    if type(key) is bytes:
        return _DOUBLE.unpack(key)[1] if key.startswith(_DOUBLE_MARK) else int(key)
    if type(key) is not tuple:
        return key
    return int(key[1], 16) if key[0] == _LARGE_NUMBER else key == TRUE_KEY


def canonical(value: Any) -> str:
    """Return the canonical text of a JSON value: values are equal if and only if their texts are."""
    kind = type(value)
    if kind is list:
        if _SIMPLE.issuperset(map(type, value)):
            # Python refuses to convert integers of thousands of digits to decimal.
            with suppress(ValueError):
                return repr(value)
        return "[" + ", ".join(map(canonical, value)) + "]"
    if kind is dict:
        members = [f"{name!r}: {canonical(value[name])}" for name in sorted(value)]
        return "{" + ", ".join(members) + "}"
    if kind is float and value.is_integer():
        value = int(value)
    try:
        return repr(value)
    except ValueError:
        return hex(value)


_SIMPLE: Final = frozenset({str, int, bool, type(None)})
"""Types for which `repr` gives the canonical text."""
