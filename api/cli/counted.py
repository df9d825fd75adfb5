"""Numbers with their nouns and units."""

from typing import Final

_UNITS_US: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_AMOUNT_MAX: Final = 120


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration_at_least(time_us: int) -> str:
    """Return a duration as options take it, rounded up to a unit of which there are not too many."""
    amounts = {unit: -(-time_us // unit_us) for unit, unit_us in _UNITS_US.items()}
    unit = next((unit for unit, amount in amounts.items() if amount <= _AMOUNT_MAX), "d")
    return f"{amounts[unit]}{unit}"
