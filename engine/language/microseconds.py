"""Converts decimal numbers of seconds or milliseconds to microseconds, exactly."""

from decimal import ROUND_HALF_EVEN, Context, Decimal

_EXACT = Context(prec=10_000, rounding=ROUND_HALF_EVEN, Emax=999_999, Emin=-999_999)

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
    exact = _EXACT.multiply(Decimal(repr(amount)), Decimal(per_unit))
    return int(exact.to_integral_value(rounding=ROUND_HALF_EVEN))
