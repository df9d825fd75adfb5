"""Validates the parts of a condition that hold no other: names, constants, patterns and windows."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeGuard
from zoneinfo import available_timezones

from engine.language.condition import LeafValue, Scalar
from engine.language.diagnostics import BAD_PATTERN, did_you_mean, json_type, quoted
from engine.language.limits import Limits
from engine.language.literals import is_text
from engine.language.microseconds import microseconds
from engine.language.operators import COUNT_MAX, LARGEST, MIN_AGE_RATIO, OPERATORS, Operand
from engine.language.validation.networks import is_network, network_of, why_no_network
from engine.language.validation.violations import Invalid, Location, Violations, names_listed
from engine.patterns.compiled_pattern import (
    REFUSED_PREPARATION,
    UNICODE_CLASSES_MAX,
    PatternError,
    judged_pattern,
    unicode_classes,
)

_RANGE_ENDS = 2
_ZONES_SUGGESTED_MAX = 10

# Tuples instead of unions: Python builds a union anew each time it meets one.
_NUMBERS = (int, float)
_SCALARS = (str, int, float)


@cache
def _zones() -> frozenset[str]:
    """Return all names of time zones, such as `Europe/Berlin`. The first call reads a few hundred files."""
    # What these stand for depends on how the machine is set up.
    return frozenset(available_timezones() - {"localtime", "Factory"})


class ValueValidator:
    """Validates the values of one document. Each method gives the value, or reports why it is invalid.

    Callers in the same process may pass subclasses of `str`, `int` and `float`, such as enumerations. The
    result is always of the plain type.
    """

    def __init__(self, violations: Violations, limits: Limits, *, is_stored: bool) -> None:
        """The patterns of a condition that `is_stored` were validated before and are not compiled again."""
        self._report = violations.report
        self._limits = limits
        self._is_stored = is_stored
        self._unicode_classes = 0
        self._unknown_zones = 0
        self._preparation = 0
        """The work of compiling the patterns so far, each counted once."""
        self._compiled = set[str]()

    def operand(self, op: object, value: object, location: Location) -> LeafValue | Invalid:
        """Validate the constant of a leaf. If its operator is unknown, the constant may be any operator's."""
        operator = OPERATORS.get(op) if isinstance(op, str) else None
        expected = operator.operand if operator else Operand.VALUE
        match expected, value:
            case ((Operand.VALUE | Operand.ARRAY), (list() | tuple())):
                return self._array(value, location)
            case Operand.RANGE, (list() | tuple()):
                return self._range(value, location)
            case Operand.PATTERN, str():
                return self._pattern(value, location)
            case ((Operand.VALUE | Operand.SCALAR), (str() | int() | float())):
                return self.scalar(value, location)
            case _:
                got = f"expected {expected.value}, got {json_type(value)}"
                return self._report(location, got + _instead(expected, value))

    def scalar(self, value: object, location: Location) -> Scalar | Invalid:
        """Validate a string, number or boolean."""
        if isinstance(value, bool):
            return value
        return self._text(value, location) if isinstance(value, str) else self.number(value, location)

    def number(self, value: object, location: Location) -> float | Invalid:
        """Validate a number. Only callers in the same process can pass one that JSON cannot express."""
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            return self._report(location, f"expected a number, got {json_type(value)}")
        if isinstance(value, float):
            finite = math.isfinite(value)
            return float(value) if finite else self._report(location, "expected a finite number")
        if not self._has_few_digits(value):
            return self._report(location, f"expected a number of at most {self._limits.digits_max} digits")
        return int(value)

    def window(self, value: object, location: Location) -> float | Invalid:
        """Validate a window: a number of seconds, 0 or more."""
        number = self.number(value, location)
        if not isinstance(number, Invalid) and number < 0:
            return self._report(location, "expected a number of seconds that is not negative")
        return number

    def min_age(self, value: object, around: Mapping[str, object], location: Location) -> float | Invalid:
        """Validate how old events must at least be, by the window among the members `around` it.

        Events between the two bounds are remembered as times, so the bounds must not be too near each other.
        """
        number = self.window(value, location)
        if isinstance(number, Invalid):
            return number
        if around.get("boundary") == "strong":
            return self._report(location, "`strong` takes no lower bound")
        window = around.get("window_secs")
        if isinstance(window, bool) or not isinstance(window, _NUMBERS) or not 0 <= window < math.inf:
            return number
        min_us, window_us = microseconds(number, 1_000_000), microseconds(window, 1_000_000)
        if min_us >= window_us:
            return self._report(location, f"expected less than `window_secs`, which is {_shown(window)}")
        if min_us > MIN_AGE_RATIO * (window_us - min_us):
            return self._report(
                location,
                f"expected at most {MIN_AGE_RATIO} times the difference to `window_secs`, which is "
                f"{_shown(window)}",
            )
        return number

    def name(self, value: object, location: Location) -> str | Invalid:
        """Validate the name of a fact."""
        if value == "$":
            return self._report(location, "expected a name after the `$`")
        return self.relation(value, location)

    def relation(self, value: object, location: Location) -> str | Invalid:
        """Validate the name of a relation. Here a `$` has no special meaning."""
        if value == "":
            return self._report(location, "expected a name, got an empty string")
        return self._text(value, location)

    def network(self, value: object, location: Location) -> str | Invalid:
        """Validate an IP address or a network."""
        text = self._text(value, location)
        if isinstance(text, Invalid) or network_of(text) is not None:
            return text
        expected = 'expected an IP address, or a network such as "10.0.0.0/8"'
        return self._report(location, f"{expected}, got {quoted(text)}{why_no_network(text)}")

    def count(self, value: object, location: Location) -> int | Invalid:
        """Validate the constant of a count: a whole number within its bounds."""
        expected = f"expected a whole number from 0 to {COUNT_MAX}"
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            return self._report(location, f"{expected}, got {json_type(value)}")
        if not isinstance(value, int) or not 0 <= value <= COUNT_MAX:
            return self._report(location, f"{expected}, got {quoted(_shown(value))}")
        return int(value)

    def factor(self, value: object, location: Location) -> float | Invalid:
        """Validate the number by which a fact is multiplied. It fits into a double."""
        number = self.number(value, location)
        if not isinstance(number, Invalid) and abs(number) > LARGEST:
            return self._report(
                location, "expected a number within the range of a double (about 1.8e308 either way)"
            )
        return number

    def zone(self, value: object, location: Location) -> str | Invalid:
        """Validate the name of a time zone."""
        text = self._text(value, location)
        if isinstance(text, Invalid) or self._is_stored or text in _zones():
            return text
        # A name takes milliseconds to compare with all zones.
        self._unknown_zones += 1
        near = did_you_mean(text, sorted(_zones())) if self._unknown_zones <= _ZONES_SUGGESTED_MAX else ""
        return self._report(
            location, f"expected the name of a time zone, as in `Europe/Berlin`, got {quoted(text)}{near}"
        )

    def earlier(self, value: object, location: Location) -> bool | Invalid:
        """Validate the member that excludes the current event: it is true or absent."""
        if value is not True:
            got = "`false`" if value is False else json_type(value)
            return self._report(location, f"expected `true`, or no such member, got {got}")
        return True

    def one_of(self, allowed: tuple[str, ...]) -> Callable[[object, Location], str | Invalid]:
        """Return a check that accepts only these words."""

        def check(value: object, location: Location) -> str | Invalid:
            if isinstance(value, str) and value in allowed:
                return str.__str__(value)
            got = json_type(value)
            if isinstance(value, str):
                got = f"{quoted(value)}{did_you_mean(value, allowed)}"
            return self._report(location, f"expected {names_listed(allowed, 'or')}, got {got}")

        return check

    def _array(self, value: Sequence[object], location: Location) -> tuple[Scalar, ...] | Invalid:
        """Validate an array of strings or of numbers; the first element decides which."""
        valid: list[Scalar] = []
        for index, element in enumerate(value):
            if isinstance(element, bool) or not isinstance(element, _SCALARS):
                at = location.element(value, index)
                return self._report(at, f"expected a string or a number, got {json_type(element)}")
            if valid and isinstance(element, str) != isinstance(valid[0], str):
                at = location.element(value, index)
                return self._report(
                    at, f"expected {json_type(valid[0])} like the first, got {json_type(element)}"
                )
            scalar = self.scalar(element, location.element(value, index))
            if isinstance(scalar, Invalid):
                return scalar
            valid.append(scalar)
        return tuple(valid)

    def _range(self, value: Sequence[object], location: Location) -> tuple[Scalar, ...] | Invalid:
        if len(value) != _RANGE_ENDS:
            return self._report(location, f"expected {Operand.RANGE.value}, got an array of {len(value)}")
        ends = self._array(value, location)
        match ends:
            case (str() as low, str() as high) if low > high:
                return self._report(
                    location, f"expected the low end first, got {quoted(low)} and {quoted(high)}"
                )
            case (int() | float() as low, int() | float() as high) if low > high:
                shown = f"{quoted(repr(low))} and {quoted(repr(high))}"
                return self._report(location, f"expected the low end first, got {shown}")
        return ends

    def _pattern(self, value: str, location: Location) -> str | Invalid:
        text = self._text(value, location)
        if isinstance(text, Invalid):
            return text
        if self._is_stored:
            return text
        bound = self._limits.condition_preparation_max
        if self._preparation > bound:
            # The excess has been reported; the remaining patterns are not compiled.
            return Invalid.REPORTED
        self._unicode_classes += unicode_classes(text)
        if self._unicode_classes > UNICODE_CLASSES_MAX:
            reason = f"a condition has at most {UNICODE_CLASSES_MAX} classes such as `\\pL` in its patterns"
            return self._report(location, f"the regular expression is refused: {reason}", BAD_PATTERN)
        if text in self._compiled:
            return text
        try:
            self._preparation += judged_pattern(text, self._limits).preparation
            self._compiled.add(text)
        except PatternError as error:
            self._preparation += REFUSED_PREPARATION
            return self._report(location, f"the regular expression is refused: {error}", BAD_PATTERN)
        if self._preparation > bound:
            reason = f"to compile it and those before it is more work than the {bound} units that are allowed"
            return self._report(location, f"the regular expression is refused: {reason}", BAD_PATTERN)
        return text

    def _has_few_digits(self, value: int) -> bool:
        bits_of_a_digit = 3
        bound = self._limits.digits_max
        return value.bit_length() <= bits_of_a_digit * bound or abs(value) < 10**bound

    def _text(self, value: object, location: Location) -> str | Invalid:
        if not isinstance(value, str):
            return self._report(location, f"expected a string, got {json_type(value)}")
        if not is_text(value):
            return self._report(location, "expected whole surrogate pairs, got half of one")
        return str.__str__(value)


def _shown(number: float) -> str:
    """Return the digits of a number. Python refuses to print integers that are very long."""
    short = 2**64
    return "an integer of many digits" if isinstance(number, int) and abs(number) >= short else repr(number)


def _instead(expected: Operand, value: object) -> str:
    """Return what to write instead of a constant of the wrong type, as the end of a message; or nothing."""
    match expected, value:
        case Operand.ARRAY, str() if is_network(value):
            return f'; a network is asked for by `in network "{value}"`'
        case Operand.ARRAY, str():
            listed = f'["{value}"]'
            return f"; a list of one value is written {quoted(listed)}"
        case Operand.SCALAR, (list() | tuple()):
            return "; ask for each of them, joined by `or`"
        case _:
            return ""


def is_array(value: object) -> TypeGuard[Sequence[object]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, list | tuple)
