"""Decodes msgpack from callers, within the limits of JSON and with its types of values only."""

from itertools import chain
from math import isfinite
from typing import Any, Final, NoReturn, TypeVar

import msgpack
import msgspec

from engine.evaluation.wire.bodies import MEMBER_WEIGHT, too_heavy, too_many_values, without_collector
from engine.evaluation.wire.violations import shape_refusal
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import DEFAULT_LIMITS, Limits

T = TypeVar("T")

_EXTENSIONS: Final = frozenset({0xC7, 0xC8, 0xC9})
"""The first bytes of extension values, which have a byte for the type before the data."""
_OBJECTS: Final = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
"""The first bytes of objects."""


def _sizes() -> list[int]:
    """Return for each first byte the size of the value in bytes, or minus the size of its length field.

    The elements of arrays and objects are values of their own.
    """
    sizes = [1] * 256
    for byte in range(0xA0, 0xC0):
        sizes[byte] = 1 + byte - 0xA0
    for first, lengths in (
        (0xC4, (-1, -2, -4)),
        (0xC7, (-1, -2, -4)),
        (0xCA, (5, 9)),
        (0xCC, (2, 3, 5, 9)),
        (0xD0, (2, 3, 5, 9)),
        (0xD4, (3, 4, 6, 10, 18)),
        (0xD9, (-1, -2, -4)),
        (0xDC, (3, 5)),
        (0xDE, (3, 5)),
    ):
        sizes[first : first + len(lengths)] = lengths
    return sizes


_SIZES: Final = _sizes()
_SCALARS: Final = frozenset({str, bool, int, float, type(None)})


def decode_msgpack(
    text: bytes, type_: type[T], limits: Limits = DEFAULT_LIMITS, place: str = "", around: int = 0
) -> T:
    """Decode msgpack that has passed `check_msgpack`, like `decode` for JSON.

    Also raises Refusal 1000 for values that JSON cannot express: binary and extension values, names that are
    not strings, NaN and infinities.
    """
    try:
        with without_collector(text):
            # Accept only strings and bytes as names. With numbers that collide in a dict, 80 KB would hold
            # the interpreter for a second.
            document = msgpack.unpackb(text, strict_map_key=True)
    except (ValueError, RecursionError) as error:
        raise unpackable(error) from None
    _check_values(document, limits.body_depth_max - around, limits.body_depth_max)
    try:
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        raise shape_refusal(document, type_, str(error), place) from None


def check_msgpack(body: bytes, limits: Limits) -> None:
    """Raise Refusal 1000 unless the body is one complete value, without too many values inside.

    Names of members count, too. The decoder allocates arrays by their announced length, so five bytes could
    make it allocate gigabytes.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(body)))
    unpacker.feed(body)
    try:
        unpacker.skip()
    except msgpack.OutOfData:
        _refuse("input data was truncated")
    except msgpack.StackError:
        _refuse("it is nested too deeply")
    except ValueError:
        _refuse("it holds a byte that begins no value")
    if unpacker.tell() != len(body):
        _refuse(f"there is more after its value (byte {unpacker.tell()})")
    # A value takes at least one byte.
    if len(body) > limits.body_values_max and not _are_few(body, limits.body_values_max):
        raise too_many_values(limits.body_values_max)


def check_packed_weight(text: bytes, weight_max: int, place: str) -> None:
    """Do the same as `check_weight`, for well-formed msgpack."""
    # A member takes at least two bytes. Its name and its value are two values.
    if len(text) * MEMBER_WEIGHT > 2 * weight_max and not _are_few(text, weight_max, MEMBER_WEIGHT - 2):
        raise too_heavy(place, weight_max)


def _are_few(text: bytes, values_max: int, for_member: int = 0) -> bool:
    """Return whether a well-formed text has few enough values, counting `for_member` more for each member."""
    at, end, left = 0, len(text), values_max
    while at < end and left > 0:
        first = text[at]
        size = _SIZES[first]
        left -= 1
        if size <= 0:
            # The first byte is followed by the length, in that many bytes, and the data.
            start = at + 1 - size
            size = 1 - size + int.from_bytes(text[at + 1 : start]) + (first in _EXTENSIONS)
        elif for_member and first in _OBJECTS:
            left -= for_member * (first & 0xF if size == 1 else int.from_bytes(text[at + 1 : at + size]))
        at += size
    return at >= end and left >= 0


def unpackable(error: Exception) -> Refusal:
    """Return the Refusal for a body that the decoder cannot read. Some of its messages would mislead."""
    match error:
        case RecursionError():
            reason = "it is nested too deeply"
        case UnicodeDecodeError():
            reason = "a string is not valid UTF-8"
        case _ if "map key" in str(error):
            reason = "a member's name is no string"
        case _:
            reason = "it holds a value of the extension type"
    return _refusal(reason)


def _check_values(document: object, depth_max: int, of_body: int) -> None:
    """Raise Refusal 1000 for values that JSON does not have. Each level takes a few passes in C."""
    level = [document]
    for _ in range(depth_max):
        if not (level := _members(level)):
            return
    if not set(map(type, level)) <= _SCALARS:
        raise Refusal(Entry(1000, f"the body is nested more than {of_body} deep"))
    _members(level)


def _members(level: list[Any]) -> list[Any]:
    """Return the members of all objects and arrays on a level."""
    kinds = set(map(type, level))
    if float in kinds and not all(isfinite(value) for value in level if type(value) is float):
        _refuse("it holds NaN or an infinity")
    parts: list[Any] = []
    for kind in kinds - _SCALARS:
        of_kind: list[Any] = [value for value in level if value and type(value) is kind]
        if kind is dict:
            if not set(map(type, chain.from_iterable(of_kind))) <= {str}:
                _refuse("a member's name is no string")
            parts.append(chain.from_iterable(map(dict.values, of_kind)))
        elif kind is list:
            parts.append(chain.from_iterable(of_kind))
        else:
            _refuse(f"it holds a value of the {'binary' if kind is bytes else 'extension'} type")
    return [*chain.from_iterable(parts)]


def _refuse(reason: str) -> NoReturn:
    raise _refusal(reason)


def _refusal(reason: str) -> Refusal:
    return Refusal(Entry(1000, f"the body is not msgpack with values of JSON: {reason}"))
