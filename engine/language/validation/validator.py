"""Validates a whole document as a condition, and reports every violation with its place."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from engine.language.condition import (
    Anywhere,
    Condition,
    FactArg,
    Keyed,
    NetworksOf,
    Scalar,
    ScaledFact,
    Some,
)
from engine.language.diagnostics import ConditionError, Source, did_you_mean, json_type
from engine.language.forms.form import Content, Form
from engine.language.forms.shapes import SCALED_FACT
from engine.language.forms.table import FORMS
from engine.language.forms.terms import PARTS, TERM_FORMS
from engine.language.limits import Limits
from engine.language.operators import COMPARISONS, OPERANDS_MAX, OPERANDS_MIN, OPERATORS
from engine.language.terms import Term, is_past
from engine.language.validation.size import check_size
from engine.language.validation.values import ValueValidator, is_array
from engine.language.validation.violations import Invalid, Location, Violations, names_listed

_Check = Callable[[Any, Location], object]
"""Validates what stands at a location: gives its value, or Invalid."""

_Made = TypeVar("_Made")


def validated(
    document: object, limits: Limits, source: Source | None = None, *, is_stored: bool = False
) -> Condition:
    """Return the condition of a document.

    `source` is the text of the document if it was read from one; messages then name lines and columns. The
    patterns of a document that `is_stored` were validated before and are not compiled again. Raises
    ConditionError: 1303 alone, otherwise every 1301 and 1302 in document order.
    """
    check_size(document, limits)
    violations = Violations(source)
    values = ValueValidator(violations, limits, is_stored=is_stored)
    condition = _Validator(violations, values).condition(document, violations.root())
    if isinstance(condition, Invalid):
        raise ConditionError(*violations.entries)
    return condition


_ABOUT_ONE: Final[dict[type, str]] = {
    Some: "`some` about the elements of one",
    Anywhere: "`anywhere` about the strings of one",
}
"""What conditions about parts of an event ask about."""


class _Validator:
    """Validates the conditions and terms of one document."""

    def __init__(self, violations: Violations, values: ValueValidator) -> None:
        self._report = violations.report
        self._values = values
        self._checks: dict[Content, _Check] = {
            Content.CONDITION: self.condition,
            Content.CONDITIONS: self._conditions,
            Content.ARGUMENTS: self._arguments,
            Content.NAME: values.name,
            Content.RELATION: values.relation,
            Content.LEAF_OP: values.one_of(tuple(OPERATORS)),
            Content.REF_OP: values.one_of(tuple(op.name for op in OPERATORS.values() if op.compares_facts)),
            Content.WINDOW: values.window,
            Content.BOUNDARY: values.one_of(("weak", "strong")),
            Content.COMPARISON: values.one_of(tuple(COMPARISONS)),
            Content.COUNT: values.count,
            Content.AMOUNT: self._amount,
            Content.FACTOR: values.factor,
            Content.TERM: self._term,
            Content.TERMS: self._terms,
            Content.TWO_TERMS: self._two_terms,
            Content.PART: values.one_of(PARTS),
            Content.ZONE: values.zone,
            Content.EARLIER: values.earlier,
            Content.NETWORKS: self._networks,
        }
        self._around: list[type] = []
        """The `some` and `anywhere` around what is validated."""

    def condition(self, value: object, location: Location) -> Condition | Invalid:
        """Validate the condition at a location."""
        if not isinstance(value, Mapping):
            return self._report(location, f"expected an object with one member, got {json_type(value)}")
        condition: Condition | Invalid = self._node(value, location, FORMS)
        return condition

    def _term(self, value: object, location: Location) -> Term | Invalid:
        match value:
            case Mapping():
                term: Term | Invalid = self._node(value, location, TERM_FORMS)
                return term
            case str() | int() | float():
                return self._values.scalar(value, location)
            case _:
                expected = "expected a term: a string, a number, a boolean or an object with one member"
                return self._report(location, f"{expected}, got {json_type(value)}")

    def _node(self, value: Mapping[Any, object], location: Location, forms: Mapping[str, Form]) -> Any:
        """Validate an object whose only member names one of these forms."""
        if len(value) != 1:
            got = names_listed(map(str, value)) if value else "none"
            self._report(location, f"expected exactly one member, got {got}")
        results = [
            self._form(str(name), content, location.member(value, str(name)), forms)
            for name, content in value.items()
        ]
        return results[0] if len(results) == 1 else Invalid.REPORTED

    def _form(self, name: str, value: object, location: Location, forms: Mapping[str, Form]) -> Any:
        form = forms.get(name)
        if form is None:
            return self._report(location, f"unknown member{did_you_mean(name, forms)}")
        is_past_one_element = form.make is Keyed or form.shape is not None or is_past(form.make)
        if self._around and is_past_one_element:
            said = _ABOUT_ONE[self._around[-1]]
            self._report(location, f"`{name}` asks about other events, but {said}")
        if form.make in _ABOUT_ONE:
            self._around.append(form.make)
        made = self._content(form, value, location)
        if form.make in _ABOUT_ONE:
            self._around.pop()
        return Invalid.REPORTED if self._around and is_past_one_element else made

    def _content(self, form: Form, value: object, location: Location) -> Any:
        make: Callable[..., Any] = form.make
        if form.is_bare:
            (content,) = form.fields.values()
            inner = self._checks[content](value, location)
            return inner if isinstance(inner, Invalid) else make(inner)
        return self._object(make, value, location, form.fields, form.optional)

    def _networks(self, value: object, location: Location) -> tuple[str, ...] | NetworksOf | Invalid:
        match value:
            case Mapping():
                return self._object(NetworksOf, value, location, {"relation": Content.RELATION})
            case list() | tuple() if value:
                return self._elements(self._values.network, value, location)
            case list() | tuple():
                return self._report(location, "expected at least one network, got none")
            case _:
                expected = 'expected an array of networks or `{"relation": NAME}`'
                return self._report(location, f"{expected}, got {json_type(value)}")

    def _conditions(self, value: object, location: Location) -> tuple[Condition, ...] | Invalid:
        if not is_array(value):
            return self._report(location, f"expected an array of conditions, got {json_type(value)}")
        if not value:
            return self._report(location, "expected at least one condition, got none")
        return self._elements(self.condition, value, location)

    def _terms(self, value: object, location: Location) -> tuple[Term, ...] | Invalid:
        # More operands than are allowed have been refused as too large.
        return self._operands(value, location, f"2 to {OPERANDS_MAX} terms", OPERANDS_MAX)

    def _two_terms(self, value: object, location: Location) -> tuple[Term, ...] | Invalid:
        return self._operands(value, location, "two terms", OPERANDS_MIN)

    def _operands(
        self, value: object, location: Location, expected: str, most: int
    ) -> tuple[Term, ...] | Invalid:
        if not is_array(value):
            return self._report(location, f"expected an array of {expected}, got {json_type(value)}")
        if not OPERANDS_MIN <= len(value) <= most:
            return self._report(location, f"expected {expected}, got {len(value) or 'none'}")
        return self._elements(self._term, value, location)

    def _arguments(self, value: object, location: Location) -> tuple[FactArg | Scalar, ...] | Invalid:
        if not is_array(value):
            return self._report(location, f"expected an array of arguments, got {json_type(value)}")
        return self._elements(self._argument, value, location)

    def _argument(self, value: object, location: Location) -> FactArg | Scalar | Invalid:
        match value:
            case Mapping():
                return self._object(FactArg, value, location, {"fact": Content.NAME})
            case str() | int() | float():
                return self._values.scalar(value, location)
            case _:
                expected = 'expected `{"fact": NAME}` or a scalar'
                return self._report(location, f"{expected}, got {json_type(value)}")

    def _amount(self, value: object, location: Location) -> float | ScaledFact | Invalid:
        match value:
            case Mapping():
                return self._object(ScaledFact, value, location, SCALED_FACT, frozenset({"times"}))
            case bool():
                pass
            case int() | float():
                return self._values.number(value, location)
        expected = 'expected a number or `{"fact": NAME}`'
        return self._report(location, f"{expected}, got {json_type(value)}")

    def _elements(
        self, check: Callable[[object, Location], _Made | Invalid], value: Any, location: Location
    ) -> tuple[_Made, ...] | Invalid:
        results = [check(element, location.element(value, index)) for index, element in enumerate(value)]
        valid = tuple(result for result in results if not isinstance(result, Invalid))
        return valid if len(valid) == len(results) else Invalid.REPORTED

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
            return self._report(location, f"expected {members}, got {json_type(value)}")
        results: dict[str, object] = dict.fromkeys(optional)
        for name, content in value.items():
            at = location.member(value, str(name))
            match fields.get(name):
                case None:
                    results[name] = self._report(at, f"unknown member{did_you_mean(str(name), fields)}")
                case Content.OPERAND:
                    results[name] = self._values.operand(value.get("op"), content, at)
                case Content.MIN_AGE:
                    results[name] = self._values.min_age(content, value, at)
                case field:
                    results[name] = self._checks[field](content, at)
        for name in fields:
            if name not in value and name not in optional:
                results[name] = self._report(location, f"missing member `{name}`")
        return Invalid.REPORTED if Invalid.REPORTED in results.values() else make(**results)
