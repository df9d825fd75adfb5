"""Decodes JSON from callers, typed and within limits."""

import functools
import gc
import json
import re
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate
from math import isinf
from typing import Any, Final, TypeVar

import msgspec

from engine.evaluation.wire.violations import shape_refusal
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes
from engine.language.limits import DEFAULT_LIMITS, Limits

T = TypeVar("T")

LARGE_BYTES: Final = 1 << 16
"""Garbage collection is suspended while a body of at least this size is decoded."""

LOOKED_THROUGH_BYTES: Final = 1 << 18
"""Up to this size, a second decoder finds out where a body is cut off, which takes longer."""

AT_ONCE_BYTES_MAX: Final = 1 << 18
"""A body up to this size takes the decoder 30 ms at worst, and mostly one."""

MEMBER_WEIGHT: Final = 5
"""A member of an object takes the decoder as long as this many other values, because its name may be new."""

_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_AS_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Brackets as steps in depth, one signed byte each."""
_PAIR: Final = b"\x01\xff"
TWO_OBJECTS: Final = re.compile(rb"\}[ \t\r]*\{")
"""Matches wherever a line has two objects side by side, including inside strings."""
_PASSES: Final = 6
_PIECE: Final = 1 << 14
"""This many brackets are processed at once, in less than a millisecond."""
_DIGITS: Final = b"0123456789"


def decode(
    body: bytes,
    type_: type[T],
    limits: Limits = DEFAULT_LIMITS,
    place: str = "",
    around: int = 0,
    *,
    apart: Callable[[T], int] = lambda _: 0,
    has_raw: bool = False,
) -> T:
    """Decode JSON as a value of a type.

    Raises Refusal 1000 if the body is not JSON, nests too deeply, or contains too many values, an integer
    with too many digits or a number outside the range of a double. Raises Refusal 1001 with every violation
    if the body does not fit the type.

    For a text inside a body, `place` is its place, and `around` the number of arrays and objects around it.
    `apart` returns how many arrays and objects in a value need not be counted, because others nest as deeply.
    `has_raw` tells that parts of the value stay JSON.
    """
    depth_max = limits.body_depth_max - around
    # Most bodies are so small and flat that they can neither take long nor exceed a limit.
    if len(body) <= limits.small_bytes and body.count(b"{") + body.count(b"[") <= depth_max:
        try:
            return _decoder(type_).decode(body)  # type: ignore[no-any-return, arg-type]  # a type is hashable
        except (ValueError, RecursionError):
            pass
    check_count(body, limits.body_values_max)
    check_weight(body, limits.event_values_max, place)
    try:
        with without_collector(body):
            if not are_costly(body):
                value = _decoder(type_).decode(body)  # type: ignore[arg-type]  # a type is hashable
                check_depth(body, depth_max, limits, apart(value))
                check_digits(body, limits.digits_max)
                return value  # type: ignore[no-any-return]  # its type
    except msgspec.ValidationError:
        # The decoder checks all duplicates of a member. A document has only the last one, which counts.
        pass
    except (ValueError, RecursionError) as error:
        raise unreadable(body, error) from None
    try:
        with without_collector(body):
            document = decode_by_hand(body)
    except (ValueError, RecursionError) as error:
        raise unreadable(body, error) from None
    check_depth(body, depth_max, limits)
    check_digits(body, limits.digits_max)
    try:
        if has_raw:
            return _decoder(type_).decode(json_bytes(document))  # type: ignore[no-any-return, arg-type]
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        raise shape_refusal(document, type_, str(error), place) from None


def decode_lines(text: bytes, type_: type[T], count: int, limits: Limits) -> list[T] | None:
    """Decode `count` lines at once, each of which is an object.

    None if a line is invalid, or if decoding all at once may take long.
    """
    if len(text) > min(AT_ONCE_BYTES_MAX, limits.event_values_max) or TWO_OBJECTS.search(text):
        return None
    try:
        if are_costly(text):
            return None
        values: list[T] = _decoder(type_).decode_lines(text)  # type: ignore[arg-type]  # a type is hashable
        check_depth(text, limits.body_depth_max, limits, count - 1)
        check_digits(text, limits.digits_max)
    except (ValueError, RecursionError, Refusal):
        return None
    # An object over two lines could be offset by a line with two objects, but no line has two.
    return values if len(values) == count else None


def without_collector(body: bytes | str) -> AbstractContextManager[None]:
    """Suspend garbage collection, which would scan the values of a large body repeatedly."""
    return _AS_IT_IS if len(body) < LARGE_BYTES or not gc.isenabled() else _without_collector()


_AS_IT_IS: Final = nullcontext()


@contextmanager
def _without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def unreadable(body: bytes, error: Exception) -> Refusal:
    """Return the Refusal for a body that is not JSON. Some messages of the decoder itself would mislead."""
    match error:
        case RecursionError():
            reason = "it is nested too deeply"
        case UnicodeDecodeError():
            reason = f"byte {_invalid_at(body)} is not valid UTF-8"
        case _ if "truncated" in str(error) and len(body) > LOOKED_THROUGH_BYTES:
            reason = "input data was truncated, or a string holds half of a surrogate pair"
        case _ if "truncated" in str(error) and _breaks_off_at_a_surrogate(body):
            reason = "a string holds half of a surrogate pair"
        case _:
            reason = str(error).removeprefix("JSON is malformed: ").split(" - at ")[0].lower()
    return Refusal(Entry(1000, f"the body is not JSON: {reason}"))


def _invalid_at(body: bytes) -> int:
    """Return the offset of the first byte that is not UTF-8, which the decoder counts within a string."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _breaks_off_at_a_surrogate(body: bytes) -> bool:
    """Return whether an unpaired surrogate, not truncation, stopped the decoder."""
    try:
        # Numbers are skipped, because they can take long.
        json.loads(body, parse_int=_skipped, parse_float=_skipped)
    except (ValueError, RecursionError):
        return False
    return True


def _skipped(_: str) -> None:
    pass


def check_count(body: bytes, values_max: int) -> None:
    """Raise Refusal 1000 if the decoded body would take too much memory."""
    # A value and the separator after it take at least two bytes.
    if len(body) > 2 * values_max and _values_at_most(body) > values_max:
        bare = without_strings(body)
        # Empty arrays and objects without blanks inside contain no value.
        if _values_at_most(bare) - bare.count(b"[]") - bare.count(b"{}") > values_max:
            raise too_many_values(values_max)


def check_weight(text: bytes, weight_max: int, place: str = "") -> None:
    """Raise Refusal 1000 if the values of a text, with members weighted, take long to decode.

    `place` is the place of the text; it is empty for the whole body.
    """
    # Each unit of weight takes at least one byte: the member `"":0,` has as many bytes as weight.
    if len(text) > weight_max and _weight_at_most(text) > weight_max:
        bare = without_strings(text)
        if _weight_at_most(bare) - bare.count(b"[]") - bare.count(b"{}") > weight_max:
            raise too_heavy(place, weight_max)


def _weight_at_most(text: bytes) -> int:
    return _values_at_most(text) + (MEMBER_WEIGHT - 1) * text.count(b":")


def too_heavy(place: str, weight_max: int) -> Refusal:
    """Return the Refusal for too many values in a text that one call decodes."""
    said = f"{f'{place}: it' if place else 'the body'} holds more than {weight_max} values"
    return Refusal(Entry(1000, f"{said}, where a member of an object counts as {MEMBER_WEIGHT}"))


def too_many_values(values_max: int) -> Refusal:
    """Return the Refusal for a body with too many values."""
    return Refusal(Entry(1000, f"the body holds more than {values_max} values"))


def _values_at_most(body: bytes) -> int:
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{")


def check_depth(text: bytes, depth_max: int, limits: Limits, apart: int = 0) -> None:
    """Raise Refusal 1000 if a text nests too deeply; `apart` arrays and objects need not be counted."""
    if text.count(b"{") + text.count(b"[") - apart > depth_max and _deeper_than(text, depth_max):
        raise Refusal(Entry(1000, f"the body is nested more than {limits.body_depth_max} deep"))


def check_digits(body: bytes, digits_max: int) -> None:
    """Raise Refusal 1000 if valid JSON has an integer with too many digits."""
    # First a cheap test that ordinary bodies pass.
    if len(body) > digits_max and _has_digits(body, digits_max) and lengths_of_integers(body, digits_max):
        raise Refusal(Entry(1000, f"the body holds an integer of more than {digits_max} digits"))


def _has_digits(body: bytes, digits_max: int) -> bool:
    """Return whether there are more than `digits_max` digits in a row.

    Such a run covers one of the visited places, so only their neighbourhoods are searched.
    """
    for place in range(digits_max, len(body), digits_max + 1):
        if body[place] in _DIGITS:
            before, after = body[place - digits_max : place], body[place + 1 : place + 1 + digits_max]
            around = len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS))
            if around >= digits_max:
                return True
    return False


def _deeper_than(body: bytes, depth_max: int) -> bool:
    """Return whether valid JSON nests deeper than `depth_max`."""
    brackets = without_strings(body).translate(_AS_STEPS, _NOT_BRACKETS)
    # Removing the innermost pairs a few times is cheap, and leaves little of most bodies.
    taken = min(_PASSES, depth_max)
    for _ in range(taken):
        brackets = brackets.replace(_PAIR, b"\0").translate(None, b"\0")
    depth = 0
    for at in range(0, len(brackets), _PIECE):
        depths = [*accumulate(array("b", brackets[at : at + _PIECE]), initial=depth)]
        if max(depths) > depth_max - taken:
            return True
        depth = depths[-1]
    return False


# -- numbers that take long ---------------------------------------------------------------------------------

SCANNED_BYTES: Final = 4 * 1024
"""A shorter body has room for only some milliseconds of such numbers, and is not searched for them."""

COSTLY_MAX: Final = 256
"""This many of such numbers take the decoder a few milliseconds."""

LONG_DIGITS: Final = 400
"""Shorter integers take about as long as other numbers of their length."""

LONG_DIGITS_SUM_MAX: Final = 1_000_000
"""The maximum number of digits in all longer integers. With 4 000 digits each, they take 30 ms."""

_AS_ZEROS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE: Final = b"0e00"
_TINY: Final = b"0e-000"
_EXACT: Final = b"0" * 20
"""The decoder converts up to 19 digits with an exponent from -99 to 9 at once."""

_HALFWAY: Final = b"0" * 17
"""Numbers of 17 digits may lie halfway between two doubles, which takes 0.65 µs each."""
HALFWAY_MAX: Final = 50_000
"""Only bodies of nearly 1 MiB or more have room for more."""

_OF_NUMBERS: Final = b"0123456789.eE+-"
_APART: Final = bytes(byte if byte in _OF_NUMBERS else ord(" ") for byte in range(256))

_PIECE_BYTES: Final = 64 * 1024
"""Splitting a piece at its quotes takes at most a millisecond, and a whole body a tenth of a second."""


def are_costly(body: bytes) -> bool:
    """Return whether the numbers of a body may take the decoder more than some milliseconds.

    Raises Refusal 1000 if integers of more than `LONG_DIGITS` digits have too many digits together.
    """
    if len(body) < SCANNED_BYTES:
        return False
    zeros = body.translate(_AS_ZEROS, b".+")
    costly = zeros.count(_EXACT)
    # At least half of the digits of a run are in whole pieces of this length.
    if costly > LONG_DIGITS_SUM_MAX // (2 * len(_EXACT)):
        _check_long_integers(body)
    if len(zeros) > len(_HALFWAY) * HALFWAY_MAX and zeros.count(_HALFWAY) > HALFWAY_MAX:
        return True
    return costly + zeros.count(_LARGE) + zeros.count(_TINY) > COSTLY_MAX


def decode_by_hand(body: bytes) -> object:
    """Decode JSON to plain values. Doubles are converted in Python, where other threads get turns."""
    return _BY_HAND.decode(body)


def _double(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError("Number out of range")
    return number


_BY_HAND: Final = msgspec.json.Decoder(float_hook=_double)


def _check_long_integers(body: bytes) -> None:
    if sum(lengths_of_integers(body, LONG_DIGITS)) > LONG_DIGITS_SUM_MAX:
        said = (
            f"the body holds more than {LONG_DIGITS_SUM_MAX} digits "
            f"in integers of more than {LONG_DIGITS} digits"
        )
        raise Refusal(Entry(1000, said))


def lengths_of_integers(body: bytes, digits: int) -> list[int]:
    """Return the numbers of digits of the integers with more than `digits` digits, in valid JSON."""
    numbers = without_strings(body).translate(_APART).split()
    long = [number.removeprefix(b"-") for number in numbers if len(number) > digits]
    return [len(number) for number in long if len(number) > digits and number.isdigit()]


def without_strings(body: bytes) -> bytes:
    """Return valid JSON without its strings. Every unescaped quote begins or ends a string."""
    bare: list[bytes] = []
    begin, inside = 0, 0
    while begin < len(body):
        piece = body[begin : begin + _PIECE_BYTES]
        if b"\\" in piece:
            if (len(piece) - len(piece.rstrip(b"\\"))) & 1:
                # Include the character that the last backslash escapes.
                piece = body[begin : begin + _PIECE_BYTES + 1]
            begin += len(piece)
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        else:
            begin += len(piece)
        parts = piece.split(b'"')
        bare.append(b"".join(parts[inside::2]))
        inside ^= (len(parts) - 1) & 1
    return b"".join(bare)
