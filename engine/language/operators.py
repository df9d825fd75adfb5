"""The tables of the language: the operators of predicates and of aggregates, and the forms of a condition.

The parser, the printer, the JSON reader and writer, the validator and the error messages all read them.
"""

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from engine.language import condition as language
from engine.language.condition import Condition

LARGEST = sys.float_info.max
"""The open end of a `between`: `x >= 5` means `x between 5 and LARGEST`."""


COUNT_MAX = 10_000
"""The largest number that a count is compared with."""


class Operand(Enum):
    """The constants that an operator of a leaf takes, in the words of error messages."""

    VALUE = "a string, a number, a boolean, or an array of strings or of numbers"
    SCALAR = "a string, a number or a boolean"
    ARRAY = "an array of strings or of numbers"
    PATTERN = "a regular expression as a string"
    RANGE = "an array of two numbers or of two strings, low then high"


class Operator(NamedTuple):
    """An operator between a fact and a constant and, for some, between two facts."""

    name: str
    """In JSON, and in `Leaf.op` and `Ref.op`."""
    text: str
    """In the text language; its canonical spelling."""
    terminal: str
    """The grammar's terminal with which it begins."""
    operand: Operand
    compares_facts: bool = False


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("eq", "==", "EQUAL", Operand.VALUE, compares_facts=True),
        Operator("neq", "!=", "UNEQUAL", Operand.VALUE, compares_facts=True),
        Operator("in", "in", "IN", Operand.ARRAY, compares_facts=True),
        Operator("nin", "not in", "NOT", Operand.ARRAY, compares_facts=True),
        Operator("contains", "contains", "CONTAINS", Operand.SCALAR),
        Operator("matches", "matches", "MATCHES", Operand.PATTERN),
        Operator("between", "between", "BETWEEN", Operand.RANGE),
    )
}
"""The operators, by their names in JSON."""

INEQUALITIES = {">": "ABOVE", ">=": "AT_LEAST", "<": "BELOW", "<=": "AT_MOST"}
"""The operators that only the text language has, and their terminals.

Each abbreviates a `between` with an open end; `>` and `<` add a `neq`."""

COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "eq": "==", "neq": "!="}
"""The operators of aggregates: their names in JSON, and their texts."""


class Content(Enum):
    """What a field of a form holds."""

    CONDITION = "condition"
    CONDITIONS = "conditions"
    NAME = "name"
    RELATION = "relation"
    ARGUMENTS = "arguments"
    LEAF_OP = "leaf operator"
    REF_OP = "ref operator"
    OPERAND = "operand"
    WINDOW = "window"
    BOUNDARY = "boundary"
    COMPARISON = "comparison"
    COUNT = "count"
    AMOUNT = "amount"
    FACTOR = "factor"


class Form(NamedTuple):
    """One form of a condition: its class, its name in JSON, and what its fields hold."""

    make: type[Condition]
    name: str
    fields: Mapping[str, Content]
    """The fields of the class, named and ordered as in JSON."""
    optional: frozenset[str] = frozenset()
    is_bare: bool = False
    """Whether JSON has the value of the only field where other forms have an object of fields."""


_INNER = {"inner": Content.CONDITION}
_BOTH = {"left": Content.CONDITION, "right": Content.CONDITION}
_WINDOW = {"window_secs": Content.WINDOW}
_OPTIONAL_WINDOW = frozenset({"window_secs"})
_OPTIONAL_WHERE = frozenset({"where"})
_OPTIONAL_BOTH = _OPTIONAL_WHERE | _OPTIONAL_WINDOW
_WHERE = {"where": Content.CONDITION}
_COUNT = _WINDOW | {"op": Content.COMPARISON, "value": Content.COUNT}
_FACT = {"fact": Content.NAME} | _WHERE
_TOTAL = _FACT | _WINDOW | {"op": Content.COMPARISON, "value": Content.AMOUNT}

SCALED_FACT = {"fact": Content.NAME, "times": Content.FACTOR}
"""The fields of a fact in the place of the number that a sum or mean is compared with."""

FORMS = {
    form.name: form
    for form in (
        Form(language.Leaf, "leaf", {"fact": Content.NAME, "op": Content.LEAF_OP, "value": Content.OPERAND}),
        Form(language.Ref, "ref", {"fact": Content.NAME, "op": Content.REF_OP, "reference": Content.NAME}),
        Form(language.InRelation, "in_relation", {"args": Content.ARGUMENTS, "relation": Content.RELATION}),
        Form(language.All, "all", {"members": Content.CONDITIONS}, is_bare=True),
        Form(language.Any, "any", {"members": Content.CONDITIONS}, is_bare=True),
        Form(language.Not, "not", _INNER, is_bare=True),
        Form(language.Once, "once", _INNER, is_bare=True),
        Form(language.Historically, "historically", _INNER, is_bare=True),
        Form(language.Since, "since", _BOTH),
        Form(language.OnceWithin, "once_within", _INNER | _WINDOW),
        Form(
            language.HistoricallyFor,
            "historically_for",
            _INNER | _WINDOW | {"boundary": Content.BOUNDARY},
            optional=frozenset({"boundary"}),
        ),
        Form(language.SinceWithin, "since_within", _BOTH | _WINDOW),
        Form(language.Keyed, "keyed", _INNER | {"key": Content.NAME} | _WHERE, optional=_OPTIONAL_WHERE),
        Form(language.Previous, "previous", _INNER, is_bare=True),
        Form(language.Earlier, "earlier", _INNER, is_bare=True),
        Form(language.EarlierWithin, "earlier_within", _INNER | _WINDOW),
        Form(language.Count, "count", _INNER | _COUNT, optional=_OPTIONAL_WINDOW),
        Form(language.Distinct, "distinct", _FACT | _COUNT, optional=_OPTIONAL_BOTH),
        Form(language.Sum, "sum", _TOTAL, optional=_OPTIONAL_BOTH),
        Form(language.Avg, "avg", _TOTAL, optional=_OPTIONAL_BOTH),
    )
}
"""The forms, by their names in JSON: the thirteen of the interface, then the additions."""

FORM_OF: Mapping[type, Form] = {form.make: form for form in FORMS.values()}


def placed_children(condition: Condition) -> Iterator[tuple[str, Condition]]:
    """Yield the conditions directly inside a condition, each with its path in JSON, such as `since.left`."""
    form = FORM_OF[type(condition)]
    for field, content in form.fields.items():
        path = form.name if form.is_bare else f"{form.name}.{field}"
        value = getattr(condition, field)
        if content is Content.CONDITION and value is not None:
            yield path, value
        elif content is Content.CONDITIONS:
            yield from ((f"{path}[{index}]", member) for index, member in enumerate(value))
