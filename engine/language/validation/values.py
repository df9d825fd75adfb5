"""What names, constants and windows may be; the first part of what makes a condition valid."""

import math
from collections.abc import Callable, Sequence
from typing import TypeGuard

from engine.language.condition import LeafValue, Scalar
from engine.language.diagnostics import BAD_PATTERN, quoted
from engine.language.limits import Limits
from engine.language.literals import is_text
from engine.language.validation.violations import Defect, Defects, Spot, kind, meant, named
from engine.patterns.searching import (
    REFUSED_PREPARATION,
    UNICODE_CLASSES_MAX,
    PatternError,
    judged_pattern,
    unicode_classes,
)

_ARRAYS = "an array of strings or of numbers"
_ANY_VALUE = f"a string, a number, a boolean, or {_ARRAYS}"
_OPERANDS = {
    "eq": _ANY_VALUE,
    "neq": _ANY_VALUE,
    "in": _ARRAYS,
    "nin": _ARRAYS,
    "contains": "a string, a number or a boolean",
    "matches": "a regular expression as a string",
    "between": "an array of two numbers or of two strings, low then high",
}
_WITH_ARRAYS = {"eq", "neq", "in", "nin", "between"}
_WITH_SCALARS = {"eq", "neq", "contains"}
_RANGE_ENDS = 2

# Tuples, not unions: a union is made anew wherever it stands.
_NUMBERS = (int, float)
_SCALARS = (str, int, float)

LEAF_OPS = tuple(_OPERANDS)


class Values:
    """Judges values of one document; each method gives the value, or tells what is wrong with it.

    Callers in the same process may send enumerations and other kinds of strings and numbers; what is given
    is a plain one.
    """

    def __init__(self, defects: Defects, limits: Limits, *, is_stored: bool = False) -> None:
        """Patterns of a condition that `is_stored` were judged before, and are not compiled again."""
        self._tell = defects.tell
        self._limits = limits
        self._is_stored = is_stored
        self._unicode_classes = 0
        self._preparation = 0
        """What the patterns so far took to judge, each once."""
        self._judged = set[str]()

    def operand(self, op: object, value: object, spot: Spot) -> LeafValue | Defect:
        """Judge the value of a leaf by its operator; where that is itself none, any leaf's value will do."""
        known = isinstance(op, str) and op in _OPERANDS
        if is_array(value) and (not known or op in _WITH_ARRAYS):
            return self._range(value, spot) if op == "between" else self._array(value, spot)
        if isinstance(value, str) and op == "matches":
            return self._pattern(value, spot)
        if isinstance(value, str | int | float) and (not known or op in _WITH_SCALARS):
            return self.scalar(value, spot)
        expected = _OPERANDS[op] if known and isinstance(op, str) else _ANY_VALUE
        return self._tell(spot, f"expected {expected}, got {kind(value)}")

    def scalar(self, value: object, spot: Spot) -> Scalar | Defect:
        """Judge a string, number or boolean."""
        if isinstance(value, bool):
            return value
        return self._text(value, spot) if isinstance(value, str) else self._number(value, spot)

    def window(self, value: object, spot: Spot) -> float | Defect:
        """Judge a window: seconds, none or more."""
        number = self._number(value, spot)
        if not isinstance(number, Defect) and number < 0:
            return self._tell(spot, "expected a number of seconds that is not negative")
        return number

    def name(self, value: object, spot: Spot) -> str | Defect:
        """Judge the name of a fact."""
        if value == "$":
            return self._tell(spot, "expected a name after the `$`")
        return self.relation(value, spot)

    def relation(self, value: object, spot: Spot) -> str | Defect:
        """Judge the name of a relation, in which a `$` means nothing."""
        if value == "":
            return self._tell(spot, "expected a name, got an empty string")
        return self._text(value, spot)

    def one_of(self, allowed: tuple[str, ...]) -> Callable[[object, Spot], str | Defect]:
        """Give what judges a word of which only these are allowed."""

        def judge(value: object, spot: Spot) -> str | Defect:
            if isinstance(value, str) and value in allowed:
                return str.__str__(value)
            got = f"{quoted(value)}{meant(value, allowed)}" if isinstance(value, str) else kind(value)
            return self._tell(spot, f"expected {named(allowed, 'or')}, got {got}")

        return judge

    def _array(self, value: Sequence[object], spot: Spot) -> tuple[Scalar, ...] | Defect:
        """Judge an array of strings or of numbers: the first element decides of which, one defect is told."""
        judged: list[Scalar] = []
        for index, element in enumerate(value):
            if isinstance(element, bool) or not isinstance(element, _SCALARS):
                at = spot.element(value, index)
                return self._tell(at, f"expected a string or a number, got {kind(element)}")
            if judged and isinstance(element, str) != isinstance(judged[0], str):
                at = spot.element(value, index)
                return self._tell(at, f"expected {kind(judged[0])} like the first, got {kind(element)}")
            scalar = self.scalar(element, spot.element(value, index))
            if isinstance(scalar, Defect):
                return scalar
            judged.append(scalar)
        return tuple(judged)

    def _range(self, value: Sequence[object], spot: Spot) -> tuple[Scalar, ...] | Defect:
        if len(value) != _RANGE_ENDS:
            return self._tell(spot, f"expected {_OPERANDS['between']}, got an array of {len(value)}")
        ends = self._array(value, spot)
        match ends:
            case (str() as low, str() as high) if low > high:
                return self._tell(spot, f"expected the low end first, got {quoted(low)} and {quoted(high)}")
            case (int() | float() as low, int() | float() as high) if low > high:
                shown = f"{quoted(repr(low))} and {quoted(repr(high))}"
                return self._tell(spot, f"expected the low end first, got {shown}")
        return ends

    def _pattern(self, value: str, spot: Spot) -> str | Defect:
        text = self._text(value, spot)
        if isinstance(text, Defect):
            return text
        if self._is_stored:
            return text
        bound = self._limits.condition_preparation_max
        if self._preparation > bound:
            # That there are too many is told, and the others are not looked at.
            return Defect.TOLD
        self._unicode_classes += unicode_classes(text)
        if self._unicode_classes > UNICODE_CLASSES_MAX:
            reason = f"a condition has at most {UNICODE_CLASSES_MAX} classes such as `\\pL` in its patterns"
            return self._tell(spot, f"the regular expression is refused: {reason}", BAD_PATTERN)
        if text in self._judged:
            return text
        try:
            self._preparation += judged_pattern(text, self._limits).preparation
            self._judged.add(text)
        except PatternError as error:
            self._preparation += REFUSED_PREPARATION
            return self._tell(spot, f"the regular expression is refused: {error}", BAD_PATTERN)
        if self._preparation > bound:
            reason = f"to compile it and those before it is more work than the {bound} units that are allowed"
            return self._tell(spot, f"the regular expression is refused: {reason}", BAD_PATTERN)
        return text

    def _number(self, value: object, spot: Spot) -> float | Defect:
        """Judge a number. One that JSON cannot say comes only from callers in the same process."""
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            return self._tell(spot, f"expected a number, got {kind(value)}")
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else self._tell(spot, "expected a finite number")
        if not self._few_digits(value):
            return self._tell(spot, f"expected a number of at most {self._limits.digits_max} digits")
        return int(value)

    def _few_digits(self, value: int) -> bool:
        bits_of_a_digit = 3
        bound = self._limits.digits_max
        return value.bit_length() <= bits_of_a_digit * bound or abs(value) < 10**bound

    def _text(self, value: object, spot: Spot) -> str | Defect:
        if not isinstance(value, str):
            return self._tell(spot, f"expected a string, got {kind(value)}")
        if not is_text(value):
            return self._tell(spot, "expected whole characters, got the half of a surrogate pair")
        return str.__str__(value)


def is_array(value: object) -> TypeGuard[Sequence[object]]:
    """Tell whether a value is a JSON array."""
    return isinstance(value, list | tuple)
