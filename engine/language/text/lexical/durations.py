"""Windows in the text language: a number and its unit, converted in exact decimal arithmetic."""

from decimal import Context, Decimal

UNITS_MS = {
    "w": 7 * 24 * 60 * 60 * 1000,
    "d": 24 * 60 * 60 * 1000,
    "h": 60 * 60 * 1000,
    "m": 60 * 1000,
    "s": 1000,
    "ms": 1,
}
"""Milliseconds of each unit, the largest unit first."""

_EXACT = Context(prec=10_000, Emax=999_999, Emin=-999_999)


def duration_seconds(amount: str, unit: str) -> int | float:
    """Return the seconds of a duration, as an integer if they are whole.

    An amount of seconds is read as JSON reads it: `1e23s` is the double `1e23`.
    """
    if unit == "s":
        return int(amount) if amount.lstrip("-").isdecimal() else float(amount)
    factor = _EXACT.divide(Decimal(UNITS_MS[unit]), Decimal(1000))
    # A context takes any exponent. `Decimal(amount)` raises an error for one of twenty digits.
    seconds = _EXACT.multiply(_EXACT.create_decimal(amount), factor)
    return int(seconds) if seconds == seconds.to_integral_value(context=_EXACT) else float(seconds)


def duration_text(window_secs: float) -> str:
    """Return the text of a window: in the largest unit that makes it an integer, otherwise in seconds.

    The text reads back as the same window, whatever its size and precision.
    """
    seconds = Decimal(repr(window_secs))
    milliseconds = _EXACT.multiply(seconds, Decimal(1000))
    for unit, unit_ms in UNITS_MS.items():
        fits = 0 < seconds < 1 if unit == "ms" else seconds != 0
        amount, rest = _EXACT.divmod(milliseconds, Decimal(unit_ms))
        text = str(int(amount))
        if fits and not rest and duration_seconds(text, unit) == window_secs:
            return text + unit
    return f"{window_secs}s"
