"""Durations: their literals, and their exact lengths in microseconds."""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

UNITS_MS: Final = {
    "w": 7 * 24 * 60 * 60 * 1000,
    "d": 24 * 60 * 60 * 1000,
    "h": 60 * 60 * 1000,
    "m": 60 * 1000,
    "s": 1000,
    "ms": 1,
}
"""The milliseconds of each unit of a duration, the largest unit first."""

EXACT: Final = Context(prec=10_000, Emax=999_999, Emin=-999_999)
"""Decimal arithmetic that does not round the amounts of durations."""

_EXACT_INTEGERS = 2.0**53
"""Below this bound, a double that is a whole number is its own shortest decimal."""

PRODUCT_MAX = _EXACT_INTEGERS / 4

CLEAR_OF_HALVES = 0.1

ROUNDING = 1.5 * 2.0**52
"""Adding and subtracting this rounds a product below PRODUCT_MAX, because doubles of that size are whole.

Generated code does this, because `round` takes several times as long; see `kernel.stream`.
"""


def microseconds(amount: float, per_unit: int) -> int:
    """Multiply the shortest decimal of `amount` by `per_unit`, and round the product half to even."""
    if isinstance(amount, int):
        return amount * per_unit
    scaled = amount * per_unit
    if -PRODUCT_MAX < scaled < PRODUCT_MAX:
        # Below 2**51 the shortest decimal is off by at most 1/4 and the product by 1/8, so a product this
        # close to an integer rounds to it.
        whole = round(scaled)
        if -CLEAR_OF_HALVES < scaled - whole < CLEAR_OF_HALVES:
            return whole
    if amount.is_integer() and abs(amount) < _EXACT_INTEGERS:
        return int(amount) * per_unit
    exact = EXACT.multiply(Decimal(repr(amount)), Decimal(per_unit))
    return int(exact.to_integral_value(rounding=ROUND_HALF_EVEN))


def split_duration(literal: str) -> tuple[str, str]:
    """Split a duration into its amount and its unit."""
    unit = literal.lstrip("-+.0123456789eE")
    assert unit in UNITS_MS
    return literal.removesuffix(unit), unit


def duration_seconds(amount: str, unit: str) -> int | float:
    """Return the seconds of a duration, as an integer if they are whole.

    An amount of seconds is read like JSON: `1e23s` is the double `1e23`.
    """
    if unit == "s":
        return int(amount) if amount.lstrip("-").isdecimal() else float(amount)
    factor = EXACT.divide(Decimal(UNITS_MS[unit]), Decimal(1000))
    # A context accepts any exponent. `Decimal(amount)` fails for one of twenty digits.
    seconds = EXACT.multiply(EXACT.create_decimal(amount), factor)
    return int(seconds) if seconds == seconds.to_integral_value(context=EXACT) else float(seconds)
