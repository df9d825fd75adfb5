"""Validates a whole document as a condition, and reports every violation with its place."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from engine.language.condition import Anywhere, Condition, FactArg, NetworksOf, Scalar, ScaledFact, Some
from engine.language.diagnostics import (
    INVALID,
    ConditionError,
    Entry,
    Source,
    did_you_mean,
    json_type,
    quoted,
)
from engine.language.forms.form import SCALED_FACT, Content, Form
from engine.language.forms.table import FORMS
from engine.language.forms.terms import PARTS, TERM_FORMS
from engine.language.limits import Limits
from engine.language.literals import is_text
from engine.language.operators import (
    COMPARISONS,
    COUNT_MAX,
    LARGEST,
    OPERANDS_MAX,
    OPERANDS_MIN,
    OPERATORS,
    Operand,
)
from engine.language.terms import Term
from engine.language.validation.constants import Constants, shown
from engine.language.validation.size import check_size
from engine.language.validation.violations import Invalid, Location, names_listed, said_at

_Made = TypeVar("_Made")

# Tuples instead of unions, which Python would create anew at each use.
_NUMBERS: Final = (int, float)
_SCALARS: Final = (str, int, float)

_WORDS: Final[Mapping[Content, tuple[str, ...]]] = {
    Content.LEAF_OP: tuple(OPERATORS),
    Content.REF_OP: tuple([operator.name for operator in OPERATORS.values() if operator.compares_facts]),
    Content.BOUNDARY: ("weak", "strong"),
    Content.COMPARISON: tuple(COMPARISONS),
    Content.PART: PARTS,
}
"""The words that some fields accept."""

_ABOUT_ONE: Final[dict[type, str]] = {
    Some: "`some` about the elements of one",
    Anywhere: "`anywhere` about the strings of one",
}
"""Descriptions of the conditions about parts of an event."""


def validated(
    document: object, limits: Limits, source: Source | None = None, *, is_stored: bool = False
) -> Condition:
    """Return the condition of a document.

    `source` is the text from which the document was read, if any; messages then have lines and columns. With
    `is_stored`, patterns were validated before, and are not compiled again. Raises ConditionError: 1303
    alone, otherwise every 1301 and 1302 in document order.
    """
    check_size(document, limits)
    validator = _Validator(limits, source, is_stored=is_stored)
    condition = validator.condition(document, Location())
    if isinstance(condition, Invalid):
        raise ConditionError(*validator.entries)
    return condition


class _Validator:
    """Validates one document. Each method returns the value at a location, or reports why it is invalid.

    Callers in the same process may pass subclasses of `str`, `int` and `float`, such as enumerations. Results
    always have the plain type.
    """

    def __init__(self, limits: Limits, source: Source | None, *, is_stored: bool) -> None:
        self.entries: list[Entry] = []
        """The violations so far."""
        self._limits, self._source, self._is_stored = limits, source, is_stored
        self._around: list[type] = []
        """The `some` and `anywhere` around the part being validated."""

    def report(self, location: Location, sentence: str, code: int = INVALID) -> Invalid:
        """Add a violation. The result stands for the invalid part."""
        self.entries.append(Entry(code, said_at(location, sentence, self._source)))
        return Invalid.REPORTED

    @cached_property
    def _constants(self) -> Constants:
        """The validator of constants that few documents have."""
        return Constants(self, self._limits, is_stored=self._is_stored)

    # -- conditions and terms -------------------------------------------------------------------------------

    def condition(self, value: object, location: Location) -> Condition | Invalid:
        """Validate the condition at a location."""
        if not isinstance(value, Mapping):
            return self.report(location, f"expected an object with one member, got {json_type(value)}")
        condition: Condition | Invalid = self._node(value, location, FORMS)
        return condition

    def _term(self, value: object, location: Location) -> Term | Invalid:
        if isinstance(value, Mapping):
            term: Term | Invalid = self._node(value, location, TERM_FORMS)
            return term
        if isinstance(value, _SCALARS):
            return self.scalar(value, location)
        expected = "expected a term: a string, a number, a boolean or an object with one member"
        return self.report(location, f"{expected}, got {json_type(value)}")

    def _node(self, value: Mapping[Any, object], location: Location, forms: Mapping[str, Form]) -> Any:
        """Validate an object whose only member has the name of one of these forms."""
        if len(value) != 1:
            got = names_listed(map(str, value)) if value else "none"
            self.report(location, f"expected exactly one member, got {got}")
        results = [
            self._form(str(name), content, Location(location, value, str(name)), forms)
            for name, content in value.items()
        ]
        return results[0] if len(results) == 1 else Invalid.REPORTED

    def _form(self, name: str, value: object, location: Location, forms: Mapping[str, Form]) -> Any:
        form = forms.get(name)
        if form is None:
            return self.report(location, f"unknown member{did_you_mean(name, forms)}")
        is_past_one_element = bool(self._around) and form.looks_back
        if is_past_one_element:
            said = _ABOUT_ONE[self._around[-1]]
            self.report(location, f"`{name}` asks about other events, but {said}")
        if form.make in _ABOUT_ONE:
            self._around.append(form.make)
        made = self._content(form, value, location)
        if form.make in _ABOUT_ONE:
            self._around.pop()
        return Invalid.REPORTED if is_past_one_element else made

    def _content(self, form: Form, value: object, location: Location) -> Any:
        make: Callable[..., Any] = form.make
        if form.is_bare:
            (content,) = form.fields.values()
            inner = self._checks[content](self, value, location)
            return inner if isinstance(inner, Invalid) else make(inner)
        return self._object(make, value, location, form.fields, form.optional)

    def _object(
        self,
        make: Callable[..., _Made],
        value: object,
        location: Location,
        fields: Mapping[str, Content],
        optional: frozenset[str] = frozenset(),
    ) -> _Made | Invalid:
        """Validate an object with these fields, and pass their values to `make`."""
        if not isinstance(value, Mapping):
            members = f"an object with {names_listed(fields)}" if fields else "an empty object"
            return self.report(location, f"expected {members}, got {json_type(value)}")
        results: dict[str, object] = dict.fromkeys(optional)
        is_valid = True
        for name, content in value.items():
            at = Location(location, value, str(name))
            field = fields.get(name)
            result: object
            if field is None:
                result = self.report(at, f"unknown member{did_you_mean(str(name), fields)}")
            elif field in _WORDS:
                result = self._word(content, _WORDS[field], at)
            elif field is Content.OPERAND:
                result = self._operand(value.get("op"), content, at)
            elif field is Content.MIN_AGE:
                result = self._constants.min_age(content, value, at)
            else:
                result = self._checks[field](self, content, at)
            is_valid = is_valid and result is not Invalid.REPORTED
            results[name] = result
        for name in fields:
            if name not in value and name not in optional:
                is_valid = False
                self.report(location, f"missing member `{name}`")
        return make(**results) if is_valid else Invalid.REPORTED

    # -- arrays, and objects with fixed members -------------------------------------------------------------

    def _conditions(self, value: object, location: Location) -> tuple[Condition, ...] | Invalid:
        if not isinstance(value, list | tuple):
            return self.report(location, f"expected an array of conditions, got {json_type(value)}")
        if not value:
            return self.report(location, "expected at least one condition, got none")
        return self._elements(self.condition, value, location)

    def _terms(self, value: object, location: Location) -> tuple[Term, ...] | Invalid:
        # An excess of operands was already refused as too large.
        return self._operands(value, location, f"2 to {OPERANDS_MAX} terms", OPERANDS_MAX)

    def _two_terms(self, value: object, location: Location) -> tuple[Term, ...] | Invalid:
        return self._operands(value, location, "two terms", OPERANDS_MIN)

    def _operands(
        self, value: object, location: Location, expected: str, most: int
    ) -> tuple[Term, ...] | Invalid:
        if not isinstance(value, list | tuple):
            return self.report(location, f"expected an array of {expected}, got {json_type(value)}")
        if not OPERANDS_MIN <= len(value) <= most:
            return self.report(location, f"expected {expected}, got {len(value) or 'none'}")
        return self._elements(self._term, value, location)

    def _arguments(self, value: object, location: Location) -> tuple[FactArg | Scalar, ...] | Invalid:
        if not isinstance(value, list | tuple):
            return self.report(location, f"expected an array of arguments, got {json_type(value)}")
        return self._elements(self._argument, value, location)

    def _argument(self, value: object, location: Location) -> FactArg | Scalar | Invalid:
        if isinstance(value, Mapping):
            return self._object(FactArg, value, location, {"fact": Content.NAME})
        if isinstance(value, _SCALARS):
            return self.scalar(value, location)
        expected = 'expected `{"fact": NAME}` or a scalar'
        return self.report(location, f"{expected}, got {json_type(value)}")

    def _networks(self, value: object, location: Location) -> tuple[str, ...] | NetworksOf | Invalid:
        if isinstance(value, Mapping):
            return self._object(NetworksOf, value, location, {"relation": Content.RELATION})
        if not isinstance(value, list | tuple):
            expected = 'expected an array of networks or `{"relation": NAME}`'
            return self.report(location, f"{expected}, got {json_type(value)}")
        if not value:
            return self.report(location, "expected at least one network, got none")
        return self._elements(self._constants.network, value, location)

    def _amount(self, value: object, location: Location) -> float | ScaledFact | Invalid:
        if isinstance(value, Mapping):
            return self._object(ScaledFact, value, location, SCALED_FACT, frozenset({"times"}))
        if isinstance(value, _NUMBERS) and not isinstance(value, bool):
            return self.number(value, location)
        expected = 'expected a number or `{"fact": NAME}`'
        return self.report(location, f"{expected}, got {json_type(value)}")

    def _elements(
        self, check: Callable[[object, Location], _Made | Invalid], value: Any, location: Location
    ) -> tuple[_Made, ...] | Invalid:
        results = [check(element, Location(location, value, place)) for place, element in enumerate(value)]
        valid = tuple([result for result in results if not isinstance(result, Invalid)])
        return valid if len(valid) == len(results) else Invalid.REPORTED

    # -- values ---------------------------------------------------------------------------------------------

    def _name(self, value: object, location: Location) -> str | Invalid:
        """Validate the name of a fact."""
        if value == "$":
            return self.report(location, "expected a name after the `$`")
        return self._relation(value, location)

    def _relation(self, value: object, location: Location) -> str | Invalid:
        """Validate the name of a relation, in which a `$` has no special meaning."""
        if value == "":
            return self.report(location, "expected a name, got an empty string")
        return self.text(value, location)

    def text(self, value: object, location: Location) -> str | Invalid:
        """Validate a string."""
        if not isinstance(value, str):
            return self.report(location, f"expected a string, got {json_type(value)}")
        # Values from a text were checked where its literals were read.
        if self._source is None and not is_text(value):
            return self.report(location, "expected whole surrogate pairs, got half of one")
        return str.__str__(value)

    def _word(self, value: object, words: tuple[str, ...], location: Location) -> str | Invalid:
        """Validate a value that must be one of a few words."""
        if isinstance(value, str) and value in words:
            return str.__str__(value)
        got = f"{quoted(value)}{did_you_mean(value, words)}" if isinstance(value, str) else json_type(value)
        return self.report(location, f"expected {names_listed(words, 'or')}, got {got}")

    def _operand(self, op: object, value: object, location: Location) -> object:
        """Validate the constant of a leaf. If its operator is unknown, any constant is accepted."""
        operator = OPERATORS.get(op) if isinstance(op, str) else None
        expected = operator.operand if operator else Operand.VALUE
        if (expected is Operand.VALUE or expected is Operand.SCALAR) and isinstance(value, _SCALARS):
            return self.scalar(value, location)
        return self._constants.operand(expected, value, location)

    def scalar(self, value: object, location: Location) -> Scalar | Invalid:
        """Validate a string, number or boolean."""
        if isinstance(value, bool):
            return value
        return self.text(value, location) if isinstance(value, str) else self.number(value, location)

    def number(self, value: object, location: Location) -> float | Invalid:
        """Validate a number. Only callers in the same process can pass numbers that JSON cannot express."""
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            return self.report(location, f"expected a number, got {json_type(value)}")
        if isinstance(value, float):
            finite = math.isfinite(value)
            return float(value) if finite else self.report(location, "expected a finite number")
        bits_of_a_digit, digits_max = 3, self._limits.digits_max
        if value.bit_length() <= bits_of_a_digit * digits_max or abs(value) < 10**digits_max:
            return int(value)
        return self.report(location, f"expected a number of at most {digits_max} digits")

    def window(self, value: object, location: Location) -> float | Invalid:
        """Validate a window: a number of seconds, 0 or more."""
        number = self.number(value, location)
        if not isinstance(number, Invalid) and number < 0:
            return self.report(location, "expected a number of seconds that is not negative")
        return number

    def _count(self, value: object, location: Location) -> int | Invalid:
        """Validate the constant of a count: an integer within bounds."""
        expected = f"expected a whole number from 0 to {COUNT_MAX}"
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            return self.report(location, f"{expected}, got {json_type(value)}")
        if not isinstance(value, int) or not 0 <= value <= COUNT_MAX:
            return self.report(location, f"{expected}, got {quoted(shown(value))}")
        return int(value)

    def _factor(self, value: object, location: Location) -> float | Invalid:
        """Validate the number by which a fact is multiplied, which must fit into a double."""
        number = self.number(value, location)
        if not isinstance(number, Invalid) and abs(number) > LARGEST:
            return self.report(
                location, "expected a number within the range of a double (about 1.8e308 either way)"
            )
        return number

    def _zone(self, value: object, location: Location) -> str | Invalid:
        """Validate the name of a time zone."""
        return self._constants.zone(value, location)

    def _earlier(self, value: object, location: Location) -> bool | Invalid:
        """Validate the member that excludes the current event: only `true` is valid."""
        if value is not True:
            got = "`false`" if value is False else json_type(value)
            return self.report(location, f"expected `true`, or no such member, got {got}")
        return True

    _checks: ClassVar[Mapping[Content, Callable[["_Validator", Any, Location], object]]] = {
        Content.CONDITION: condition,
        Content.CONDITIONS: _conditions,
        Content.ARGUMENTS: _arguments,
        Content.NAME: _name,
        Content.RELATION: _relation,
        Content.WINDOW: window,
        Content.COUNT: _count,
        Content.AMOUNT: _amount,
        Content.FACTOR: _factor,
        Content.TERM: _term,
        Content.TERMS: _terms,
        Content.TWO_TERMS: _two_terms,
        Content.ZONE: _zone,
        Content.EARLIER: _earlier,
        Content.NETWORKS: _networks,
    }


"""The validators of fields, except for those with a few words or that depend on other fields."""
