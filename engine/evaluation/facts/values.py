"""Events and their values at evaluation: typed equality, and keys.

None stands for a missing value, whether the event has JSON `null` or does not have the fact at all.
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
"""Booleans as keys. In Python `True == 1`; here they differ."""


KEY_CHARS_MAX: Final = 256
"""The keys of longer texts are their SHA-256."""

LONG_TEXT: Final = "text"
_LARGE_NUMBER: Final = "number"
_PLAIN_NUMBER_MAX: Final = 1 << 16
_DECIMAL_NUMBER_MAX: Final = 1 << 60
"""Floats of this size and larger are whole. Python refuses to write numbers of thousands of digits."""

_DOUBLE: Final = Struct("<cd")
_DOUBLE_MARK: Final = b"f"
"""The first byte of the key of a double. That of other numbers is a digit or a minus sign."""


def equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal: of one type, numbers by value, arrays and objects deeply."""
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
    """Return the hashable form of a scalar, in which `1` equals `1.0` but not `true`; None for other values.

    Python hashes a number to a number that anyone can predict. So a caller could send thousands for which a
    dict or set looks in the same places, one after another. Of small whole numbers there are too few for
    that. All others are represented by bytes, whose hash nobody can predict: their digits, or the double.
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
    """Return the `key_of` a scalar for storage: for a long text its digest, so that keys stay small."""
    if type(value) is str and len(value) > KEY_CHARS_MAX:
        return (LONG_TEXT, _digest(value))
    return key_of(value)


_RECENT: Final[list[tuple[tuple[str, str], ...]]] = [()]
"""The most recent long texts, with their digests."""

_RECENT_MAX: Final = 4


def _digest(text: str) -> str:
    """Return the SHA-256 of a text, computed once for all paths of one event with this key.

    The cache compares texts by identity: comparing equal texts would take about as long as the digest.
    """
    for known, digest in _RECENT[0]:
        if known is text:
            return digest
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    _RECENT[0] = ((text, digest), *_RECENT[0][: _RECENT_MAX - 1])
    return digest


MOST_DOUBLED: Final = (1 << 1024) - (1 << 970) - 1
"""The largest integer for which there is a double. A larger one is rounded past their range."""


def double(value: Any) -> float | None:
    """Return a number as a double, or None for what is no number or past a double's range."""
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
    """Return a number times another, as doubles, or None where `double` does."""
    number = double(value)
    return None if number is None else number * times


def part_of_key(key: Any) -> Any:
    """Return the form of a key, or of None, inside a tuple of keys.

    The hash of a tuple of numbers can be predicted, even if these are small. The hash of bytes cannot.
    """
    return b"%d" % key if type(key) is int or type(key) is float else key


def scalar_of(key: Any) -> Any:
    """Return the scalar of a key or of a part of a key. The key is not that of a long text."""
    if type(key) is bytes:
        return _DOUBLE.unpack(key)[1] if key.startswith(_DOUBLE_MARK) else int(key)
    if type(key) is not tuple:
        return key
    return int(key[1], 16) if key[0] == _LARGE_NUMBER else key == TRUE_KEY


def canonical(value: Any) -> str:
    """Return the canonical text of a JSON value: two values are equal exactly if their texts are."""
    kind = type(value)
    if kind is list:
        if _SIMPLE.issuperset(map(type, value)):
            # Python refuses to write integers of more than some thousands of digits.
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
