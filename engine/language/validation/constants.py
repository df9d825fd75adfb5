"""Validates constants that need more than a check of the type: lists, ranges, patterns, zones, networks."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol
from zoneinfo import available_timezones

from engine.language.condition import LeafValue, Scalar
from engine.language.diagnostics import (
    BAD_PATTERN,
    INVALID,
    LINE_CHARS_MAX,
    cut,
    did_you_mean,
    json_type,
    quoted,
)
from engine.language.durations import microseconds
from engine.language.limits import Limits
from engine.language.operators import MIN_AGE_RATIO, Operand
from engine.language.validation.networks import is_network, network_of, why_no_network
from engine.language.validation.violations import Invalid, Location
from engine.patterns.compiled_pattern import (
    REFUSED_PREPARATION,
    UNICODE_CLASSES_MAX,
    PatternError,
    judged_pattern,
    unicode_classes,
)

_RANGE_ENDS = 2
_ZONES_SUGGESTED_MAX = 10

# Tuples instead of unions, which Python would create anew at each use.
_NUMBERS = (int, float)
_SCALARS = (str, int, float)


@cache
def _zones() -> frozenset[str]:
    """Return all names of time zones, such as `Europe/Berlin`. The first call reads a few hundred files."""
    # The meaning of these depends on the configuration of the machine.
    return frozenset(available_timezones() - {"localtime", "Factory"})


class Checks(Protocol):
    """The checks of a document's validator. Each returns the value at a location, or reports a violation."""

    def report(self, location: Location, sentence: str, code: int = INVALID) -> Invalid:
        """Add a violation."""

    def text(self, value: object, location: Location) -> str | Invalid:
        """Validate a string."""

    def scalar(self, value: object, location: Location) -> Scalar | Invalid:
        """Validate a string, number or boolean."""

    def window(self, value: object, location: Location) -> float | Invalid:
        """Validate a window."""


class Constants:
    """Validates such constants of one document, with the checks of its validator."""

    def __init__(self, checks: Checks, limits: Limits, *, is_stored: bool) -> None:
        """With `is_stored`, the patterns were validated before, and are not compiled again."""
        self._checks = checks
        self._limits = limits
        self._is_stored = is_stored
        self._unicode_classes = 0
        self._unknown_zones = 0
        self._preparation = 0
        """The work of compiling the patterns so far, each counted once."""
        self._compiled = set[str]()

    def operand(self, expected: Operand, value: object, location: Location) -> LeafValue | Invalid:
        """Validate the constant of a leaf, unless it is a scalar, which the caller has validated."""
        match expected, value:
            case ((Operand.VALUE | Operand.ARRAY), (list() | tuple())):
                return self._array(value, location)
            case Operand.RANGE, (list() | tuple()):
                return self._range(value, location)
            case Operand.PATTERN, str():
                return self._pattern(value, location)
            case _:
                got = f"expected {expected.value}, got {json_type(value)}"
                return self._checks.report(location, got + _instead(expected, value))

    def min_age(self, value: object, around: Mapping[str, object], location: Location) -> float | Invalid:
        """Validate the minimum age of events, given the window among the members `around` it.

        Events between the two bounds are stored as times, so the bounds must not be too close to each other.
        """
        number = self._checks.window(value, location)
        if isinstance(number, Invalid):
            return number
        if around.get("boundary") == "strong":
            return self._checks.report(location, "`strong` takes no lower bound")
        window = around.get("window_secs")
        if isinstance(window, bool) or not isinstance(window, _NUMBERS) or not 0 <= window < math.inf:
            return number
        min_us, window_us = microseconds(number, 1_000_000), microseconds(window, 1_000_000)
        if min_us >= window_us:
            return self._checks.report(
                location, f"expected less than `window_secs`, which is {shown(window)}"
            )
        if min_us > MIN_AGE_RATIO * (window_us - min_us):
            return self._checks.report(
                location,
                f"expected at most {MIN_AGE_RATIO} times the difference to `window_secs`, which is "
                f"{shown(window)}",
            )
        return number

    def network(self, value: object, location: Location) -> str | Invalid:
        """Validate an IP address or a network."""
        text = self._checks.text(value, location)
        if isinstance(text, Invalid) or network_of(text) is not None:
            return text
        expected = 'expected an IP address, or a network such as "10.0.0.0/8"'
        return self._checks.report(location, f"{expected}, got {quoted(text)}{why_no_network(text)}")

    def zone(self, value: object, location: Location) -> str | Invalid:
        """Validate the name of a time zone."""
        text = self._checks.text(value, location)
        if isinstance(text, Invalid) or self._is_stored or text in _zones():
            return text
        # Comparing a name with all zones takes milliseconds.
        self._unknown_zones += 1
        near = did_you_mean(text, sorted(_zones())) if self._unknown_zones <= _ZONES_SUGGESTED_MAX else ""
        return self._checks.report(
            location, f"expected the name of a time zone, as in `Europe/Berlin`, got {quoted(text)}{near}"
        )

    def _array(self, value: Sequence[object], location: Location) -> tuple[Scalar, ...] | Invalid:
        """Validate an array of strings or of numbers, as decided by the first element."""
        valid: list[Scalar] = []
        for index, element in enumerate(value):
            if isinstance(element, bool) or not isinstance(element, _SCALARS):
                at = Location(location, value, index)
                return self._checks.report(at, f"expected a string or a number, got {json_type(element)}")
            if valid and isinstance(element, str) != isinstance(valid[0], str):
                at = Location(location, value, index)
                return self._checks.report(
                    at, f"expected {json_type(valid[0])} like the first, got {json_type(element)}"
                )
            scalar = self._checks.scalar(element, Location(location, value, index))
            if isinstance(scalar, Invalid):
                return scalar
            valid.append(scalar)
        return tuple(valid)

    def _range(self, value: Sequence[object], location: Location) -> tuple[Scalar, ...] | Invalid:
        if len(value) != _RANGE_ENDS:
            return self._checks.report(
                location, f"expected {Operand.RANGE.value}, got an array of {len(value)}"
            )
        ends = self._array(value, location)
        match ends:
            case (str() as low, str() as high) if low > high:
                return self._checks.report(
                    location, f"expected the low end first, got {quoted(low)} and {quoted(high)}"
                )
            case (int() | float() as low, int() | float() as high) if low > high:
                ends_shown = f"{quoted(repr(low))} and {quoted(repr(high))}"
                return self._checks.report(location, f"expected the low end first, got {ends_shown}")
        return ends

    def _pattern(self, value: str, location: Location) -> str | Invalid:
        text = self._checks.text(value, location)
        if isinstance(text, Invalid):
            return text
        if self._is_stored:
            return text
        bound = self._limits.condition_preparation_max
        if self._preparation > bound:
            # The excess was reported; the remaining patterns are not compiled.
            return Invalid.REPORTED
        self._unicode_classes += unicode_classes(text)
        if self._unicode_classes > UNICODE_CLASSES_MAX:
            reason = f"a condition has at most {UNICODE_CLASSES_MAX} classes such as `\\pL` in its patterns"
            return self._checks.report(location, f"the regular expression is refused: {reason}", BAD_PATTERN)
        if text in self._compiled:
            return text
        try:
            self._preparation += judged_pattern(text, self._limits).preparation
            self._compiled.add(text)
        except PatternError as error:
            self._preparation += REFUSED_PREPARATION
            reason = cut(str(error), LINE_CHARS_MAX - 1)
            return self._checks.report(location, f"the regular expression is refused: {reason}", BAD_PATTERN)
        if self._preparation > bound:
            reason = f"to compile it and those before it is more work than the {bound} units that are allowed"
            return self._checks.report(location, f"the regular expression is refused: {reason}", BAD_PATTERN)
        return text


def shown(number: float) -> str:
    """Return the digits of a number. Python refuses to print very long integers."""
    short = 2**64
    return "an integer of many digits" if isinstance(number, int) and abs(number) >= short else repr(number)


def _instead(expected: Operand, value: object) -> str:
    """Return what to write instead of a constant of the wrong type, as the end of a message; may be empty."""
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
