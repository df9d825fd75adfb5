"""Numbers in JSON that take long to decode: the decoder holds the interpreter until it is done.

Its time for a number is 30 to 100 ns, but some microseconds where it has to calculate with many digits: near
the ends of a double's range (`9e296`, `3e-320`), and where a text lies between two doubles. For an integer it
grows with the square of the digits.
"""

from math import isinf
from typing import Final

import msgspec

from engine.language.diagnostics import Entry, Refusal

SCANNED_BYTES: Final = 4 * 1024
"""A shorter body has room for some milliseconds of such numbers, and is not searched for them."""

COSTLY_MAX: Final = 256
"""This many of such numbers take the decoder a few milliseconds."""

LONG_DIGITS: Final = 400
"""Shorter integers take about as long as other numbers of their size."""

LONG_DIGITS_SUM_MAX: Final = 1_000_000
"""The most digits in all integers that are longer. Of 4 000 digits each, these take 30 ms."""

_AS_ZEROS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE: Final = b"0e00"
_TINY: Final = b"0e-000"
_EXACT: Final = b"0" * 20
"""The decoder knows at once the double of 19 digits with an exponent from -99 to 9."""

_HALFWAY: Final = b"0" * 17
"""Texts of 17 digits may lie halfway between two doubles, and then take 0.65 µs each."""
HALFWAY_MAX: Final = 50_000
"""Only an event of nearly 1 MiB and more has room for more."""

_OF_NUMBERS: Final = b"0123456789.eE+-"
_APART: Final = bytes(byte if byte in _OF_NUMBERS else ord(" ") for byte in range(256))

_PIECE_BYTES: Final = 64 * 1024
"""Splitting a piece at its quotes takes a millisecond at worst, and a whole body a tenth of a second."""


def are_costly(body: bytes) -> bool:
    """Return whether the numbers of a body may take the decoder more than some milliseconds.

    Raises Refusal 1000 if the integers of more than `LONG_DIGITS` digits have too many digits together.
    """
    if len(body) < SCANNED_BYTES:
        return False
    zeros = body.translate(_AS_ZEROS, b".+")
    costly = zeros.count(_EXACT)
    # A run of digits has half of its digits in whole pieces of this length at least.
    if costly > LONG_DIGITS_SUM_MAX // (2 * len(_EXACT)):
        _check_long_integers(body)
    if len(zeros) > len(_HALFWAY) * HALFWAY_MAX and zeros.count(_HALFWAY) > HALFWAY_MAX:
        return True
    return costly + zeros.count(_LARGE) + zeros.count(_TINY) > COSTLY_MAX


def decode_by_hand(body: bytes) -> object:
    """Decode JSON to plain values. Each double is made in Python, where other threads get their turn."""
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
    """Return how many digits the integers of more than `digits` digits have, where the body is valid JSON."""
    numbers = without_strings(body).translate(_APART).split()
    long = [number.removeprefix(b"-") for number in numbers if len(number) > digits]
    return [len(number) for number in long if len(number) > digits and number.isdigit()]


def without_strings(body: bytes) -> bytes:
    """Return valid JSON without its strings. Every unescaped quote starts or ends one."""
    bare: list[bytes] = []
    begin, inside = 0, 0
    while begin < len(body):
        piece = body[begin : begin + _PIECE_BYTES]
        if b"\\" in piece:
            if (len(piece) - len(piece.rstrip(b"\\"))) & 1:
                # Take in the character that the last backslash escapes.
                piece = body[begin : begin + _PIECE_BYTES + 1]
            begin += len(piece)
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        else:
            begin += len(piece)
        parts = piece.split(b'"')
        bare.append(b"".join(parts[inside::2]))
        inside ^= (len(parts) - 1) & 1
    return b"".join(bare)
