"""Decodes msgpack from callers, with the bounds of JSON and only the values that JSON has."""

import functools
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from math import isfinite
from typing import Any, Final, NoReturn, TypeVar

import msgpack
import msgspec

from engine.evaluation.wire.bodies import (
    MEMBER_WEIGHT,
    converted,
    too_heavy,
    too_many_values,
    without_collector,
)
from engine.evaluation.wire.violations import shape_refusal
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import DEFAULT_LIMITS, Limits

T = TypeVar("T")

_EXTENSIONS: Final = frozenset({0xC7, 0xC8, 0xC9})
"""First bytes of extension values, whose data follow a byte for the type."""


_OBJECT: Final = 0x80
_ARRAY: Final = 0x90
_TEXT: Final = 0xA0
_NIL: Final = 0xC0
_LONG_TEXTS: Final = frozenset({0xD9, 0xDA, 0xDB})
_LONG_ARRAY: Final = 0xDC
_LONG_OBJECT: Final = 0xDE
_NEGATIVE: Final = 0xE0
"""The first bytes of kinds of values."""


def _sizes() -> list[int]:
    """Return the size of a value in bytes for each first byte, or minus the size of its length field.

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
_SCALARS: Final = frozenset({str, bool, int, float, type(None), msgspec.UnsetType})


def decode_msgpack(
    body: bytes,
    type_: type[T],
    limits: Limits = DEFAULT_LIMITS,
    *,
    plain: tuple[type[T], Callable[[T], bool]] | None = None,
    named: type[T] | None = None,
) -> T:
    """Decode a msgpack body as a value of a type.

    Raises Refusal 1000 if the body is not msgpack, nests too deep, contains too many values (here names of
    members count, too) or what JSON cannot express: binary and extension values, names that are not strings,
    NaN and infinities. Raises Refusal 1001 with every violation if the body does not fit the type. Of
    duplicate members only the last counts.

    `plain` has a type that most bodies fit, which is tried first. If the function is true of such a value, it
    is not checked again: it nests no deeper than the limit, and all of its numbers are finite. `named` has a
    type of which all members have strings as names, see `named_values`, and is tried next.
    """
    check_msgpack(body, limits)
    depth_max = limits.body_depth_max
    try:
        with without_collector(body):
            value: T
            if plain is not None:
                narrow, is_plain = plain
                with suppress(msgspec.ValidationError):
                    value = _decoder(narrow).decode(body)  # type: ignore[arg-type]  # as below
                    if is_plain(value):
                        return value
            if named is not None:
                with suppress(msgspec.ValidationError):
                    value = _decoder(named).decode(body)  # type: ignore[arg-type]  # as below
                    _check_values(value, depth_max)
                    return value
            check_names(body)
            value = _decoder(type_).decode(body)  # type: ignore[arg-type]  # a type is hashable
    except msgspec.ValidationError as error:
        document = _untyped(body)
        _check_values(document, depth_max)
        if (value_of_last := converted(document, type_)) is not None:
            return value_of_last
        raise shape_refusal(document, type_, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise unpackable(error) from None
    _check_values(value, depth_max)
    return value


@functools.cache
def _decoder(type_: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type_)


def check_msgpack(body: bytes, limits: Limits) -> None:
    """Raise Refusal 1000 unless the body is one complete value, with few enough values in it."""
    _check_framing(body)
    # A value takes at least one byte.
    if len(body) > limits.body_values_max and not _are_few(body, limits.body_values_max):
        raise too_many_values(limits.body_values_max)


def check_packed_weight(text: bytes, weight_max: int, place: str) -> None:
    """Do what `check_weight` does, for a well-formed text of msgpack."""
    # A member takes two bytes at least.
    if len(text) * MEMBER_WEIGHT <= 2 * weight_max:
        return
    at, end, weight = 0, len(text), 0
    while at < end:
        first = text[at]
        size, length = _size_at(text, at)
        if _OBJECT <= first < _ARRAY or _LONG_OBJECT <= first < _NEGATIVE:
            # Its name and its value come as two more.
            weight += (MEMBER_WEIGHT - 2) * length
        weight += 1
        if weight > weight_max:
            raise too_heavy(place, weight_max)
        at += size


def _check_framing(body: bytes) -> None:
    """Raise Refusal 1000 unless the body is exactly one complete value.

    The decoder allocates arrays by their announced length, so five bytes could make it take gigabytes.
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


def _are_few(body: bytes, values_max: int) -> bool:
    """Return whether a well-formed body contains at most `values_max` values."""
    sizes, at, end = _SIZES, 0, len(body)
    for _ in range(values_max):
        if at >= end:
            return True
        size = sizes[body[at]]
        if size <= 0:
            # After the first byte come the length, in that many bytes, and the data.
            start = at + 1 - size
            size = 1 - size + int.from_bytes(body[at + 1 : start]) + (body[at] in _EXTENSIONS)
        at += size
    return at >= end


def named_values(levels: int) -> Any:
    """Return the type of a value of JSON in which arrays and objects nest at most this deep."""
    values: Any = str | int | float | bool | None
    for _ in range(levels):
        values = str | int | float | bool | None | list[values] | dict[str, values]
    return values


def check_names(body: bytes) -> None:
    """Raise Refusal 1000 unless the names of all members of a well-formed body are strings.

    The decoder takes numbers as names. With numbers for which a dict looks in the same places, one after
    another, 80 KB would hold the interpreter for a second.
    """
    at, end = 0, len(body)
    left, in_object, outer = 0, False, []
    while at < end:
        first = body[at]
        if in_object and not left & 1 and not (_TEXT <= first < _NIL or first in _LONG_TEXTS):
            _refuse("a member's name is no string")
        left -= 1
        size, length = _size_at(body, at)
        at += size
        if length:
            outer.append((left, in_object))
            in_object = first < _ARRAY or first >= _LONG_OBJECT
            left = 2 * length if in_object else length
        while not left and outer:
            left, in_object = outer.pop()


def _size_at(body: bytes, at: int) -> tuple[int, int]:
    """Return the size in bytes of the value that begins here, and how many elements or members follow it."""
    first = body[at]
    size = _SIZES[first]
    if size <= 0:
        start = at + 1 - size
        return 1 - size + int.from_bytes(body[at + 1 : start]) + (first in _EXTENSIONS), 0
    if _OBJECT <= first < _TEXT:
        return size, first & 0xF
    if first >= _LONG_ARRAY and first < _NEGATIVE:
        return size, int.from_bytes(body[at + 1 : at + size])
    return size, 0


def _untyped(body: bytes) -> object:
    try:
        return msgspec.msgpack.decode(body)
    except (ValueError, RecursionError) as error:
        raise unpackable(error) from None


def _reason(error: Exception) -> str:
    """Say why the decoder failed. Some of its own messages would mislead."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "a string is not valid UTF-8"
        case msgspec.ValidationError():
            return "it holds a value of the extension type"
        case _ if "hashable" in str(error):
            return "a member's name is no string"
        case _:
            return str(error).removeprefix("MessagePack data is malformed: ").lower()


def _check_values(document: object, depth_max: int) -> None:
    """Raise Refusal 1000 for values that JSON does not have. Each level takes a few passes in C."""
    level = [document]
    for _ in range(depth_max):
        if not (level := _members(level)):
            return
    if not set(map(type, level)) <= _SCALARS:
        raise Refusal(Entry(1000, f"the body is nested more than {depth_max} deep"))
    _members(level)


def _members(level: list[Any]) -> list[Any]:
    """Return the members of all objects and arrays of a level."""
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
        elif issubclass(kind, msgspec.Struct):
            parts.append(chain.from_iterable(map(msgspec.structs.astuple, of_kind)))
        else:
            _refuse(f"it holds a value of the {'binary' if kind is bytes else 'extension'} type")
    return [*chain.from_iterable(parts)]


def emptied(text: bytes) -> object:
    """Return the value of a well-formed text, without its elements or members.

    Raises Refusal 1000 for a value that JSON does not have.
    """
    first = text[0]
    if _OBJECT <= first < _ARRAY or _LONG_OBJECT <= first < _NEGATIVE:
        return {}
    if _ARRAY <= first < _TEXT or _LONG_ARRAY <= first < _LONG_OBJECT:
        return []
    value = _untyped(text)
    _check_values(value, 1)
    return value


def unpackable(error: Exception) -> Refusal:
    """Return the Refusal for a body that the decoder cannot read."""
    return _refusal(_reason(error))


def _refuse(reason: str) -> NoReturn:
    raise _refusal(reason)


def _refusal(reason: str) -> Refusal:
    return Refusal(Entry(1000, f"the body is not msgpack with values of JSON: {reason}"))
