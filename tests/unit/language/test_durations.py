"""Times as exact microseconds: held against fractions."""

import random
from decimal import Decimal
from fractions import Fraction

import pytest

from engine.language.durations import microseconds

MILLISECONDS, SECONDS = 1_000, 1_000_000


@pytest.mark.parametrize(
    ("amount", "per_unit", "expected"),
    [
        (7, MILLISECONDS, 7_000),
        (2**70 + 1, MILLISECONDS, (2**70 + 1) * 1_000),
        (-3, SECONDS, -3_000_000),
        (1.5, MILLISECONDS, 1_500),
        (0.0005, MILLISECONDS, 0),
        (0.0015, MILLISECONDS, 2),
        (-0.0025, MILLISECONDS, -2),
        # As doubles, the product is 2000.5000000000002.
        (2.0005, MILLISECONDS, 2_000),
        (0.29, SECONDS, 290_000),
        (1709542800000.001, MILLISECONDS, 1709542800000001),
        (1e300, MILLISECONDS, 10**303),
        (5e-324, SECONDS, 0),
    ],
)
def test_a_product_is_exact_and_rounded_half_to_even(amount: float, per_unit: int, expected: int) -> None:
    found = microseconds(amount, per_unit)
    assert (found, type(found)) == (expected, int)


@pytest.mark.parametrize("per_unit", [MILLISECONDS, SECONDS])
@pytest.mark.parametrize("bits", range(-12, 64, 3))
def test_it_is_the_product_of_the_shortest_decimal(bits: int, per_unit: int) -> None:
    chosen = random.Random(bits)
    for digits in range(12):
        amount = round(chosen.uniform(-(2.0**bits), 2.0**bits), digits)
        for each in (amount, float(round(amount)), round(amount) + 0.5):
            found = microseconds(each, per_unit)
            assert (found, type(found)) == (round(Fraction(Decimal(repr(each))) * per_unit), int)
