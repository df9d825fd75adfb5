"""Validates a whole document as a condition, and reports every violation with its place."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from engine.language.condition import Condition, FactArg, Scalar, ScaledFact
from engine.language.diagnostics import ConditionError, Source, did_you_mean, json_type
from engine.language.forms.form import Content
from engine.language.forms.shapes import SCALED_FACT
from engine.language.forms.table import FORMS
from engine.language.limits import Limits
from engine.language.operators import COMPARISONS, OPERATORS
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


class _Validator:
    """Validates the conditions of one document."""

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
        }

    def condition(self, value: object, location: Location) -> Condition | Invalid:
        """Validate the condition at a location."""
        if not isinstance(value, Mapping):
            return self._report(location, f"expected an object with one member, got {json_type(value)}")
        if len(value) != 1:
            got = names_listed(map(str, value)) if value else "none"
            self._report(location, f"expected exactly one member, got {got}")
        results = [
            self._form(str(name), content, location.member(value, str(name)))
            for name, content in value.items()
        ]
        return results[0] if len(results) == 1 else Invalid.REPORTED

    def _form(self, name: str, value: object, location: Location) -> Condition | Invalid:
        form = FORMS.get(name)
        if form is None:
            return self._report(location, f"unknown member{did_you_mean(name, FORMS)}")
        make: Callable[..., Condition] = form.make
        if form.is_bare:
            (content,) = form.fields.values()
            inner = self._checks[content](value, location)
            return inner if isinstance(inner, Invalid) else make(inner)
        return self._object(make, value, location, form.fields, form.optional)

    def _conditions(self, value: object, location: Location) -> tuple[Condition, ...] | Invalid:
        if not is_array(value):
            return self._report(location, f"expected an array of conditions, got {json_type(value)}")
        if not value:
            return self._report(location, "expected at least one condition, got none")
        return self._elements(self.condition, value, location)

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
            got = json_type(value)
            return self._report(location, f"expected an object with {names_listed(fields)}, got {got}")
        results: dict[str, object] = dict.fromkeys(optional)
        for name, content in value.items():
            at = location.member(value, str(name))
            match fields.get(name):
                case None:
                    results[name] = self._report(at, f"unknown member{did_you_mean(str(name), fields)}")
                case Content.OPERAND:
                    results[name] = self._values.operand(value.get("op"), content, at)
                case field:
                    results[name] = self._checks[field](content, at)
        for name in fields:
            if name not in value and name not in optional:
                results[name] = self._report(location, f"missing member `{name}`")
        return Invalid.REPORTED if Invalid.REPORTED in results.values() else make(**results)
