"""The operators of predicates and aggregates: their names in JSON, their texts, and their operands."""

import operator
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

LARGEST = sys.float_info.max
"""The open end of a `between`: `x >= 5` means `x between 5 and LARGEST`."""


COUNT_MAX = 10_000
"""The maximum number that a count is compared with."""

MIN_AGE_RATIO = 256
"""A minimum age of events is at most this many times as long as the rest of the window."""


OPERANDS_MIN, OPERANDS_MAX = 2, 64
"""The minimum and maximum number of operands of a sum or a product."""


class Operand(Enum):
    """The constants that an operator of a leaf accepts, in the words of error messages."""

    VALUE = "a string, a number, a boolean, or an array of strings or of numbers"
    SCALAR = "a string, a number or a boolean"
    ARRAY = "an array of strings or of numbers"
    PATTERN = "a regular expression as a string"
    RANGE = "an array of two numbers or of two strings, low then high"


class Operator(NamedTuple):
    """An operator between a fact and a constant and, for some, between two facts."""

    name: str
    """The name in JSON, and in `Leaf.op` and `Ref.op`."""
    text: str
    """The canonical spelling in the text language."""
    terminal: str
    """The grammar's terminal with which it begins."""
    operand: Operand
    compares_facts: bool = False


OPERATORS = {
    one.name: one
    for one in (
        Operator("eq", "==", "EQUAL", Operand.VALUE, compares_facts=True),
        Operator("neq", "!=", "UNEQUAL", Operand.VALUE, compares_facts=True),
        Operator("in", "in", "IN", Operand.ARRAY, compares_facts=True),
        Operator("nin", "not in", "NOT", Operand.ARRAY, compares_facts=True),
        Operator("contains", "contains", "CONTAINS", Operand.SCALAR),
        Operator("matches", "matches", "MATCHES", Operand.PATTERN),
        Operator("between", "between", "BETWEEN", Operand.RANGE),
    )
}
"""The operators by their names in JSON."""

INEQUALITIES = {">": "ABOVE", ">=": "AT_LEAST", "<": "BELOW", "<=": "AT_MOST"}
"""The operators that exist only in the text language, and their terminals.

Each abbreviates a `between` with an open end; `>` and `<` add a `neq`."""

COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "eq": "==", "neq": "!="}
"""The operators of aggregates: their names in JSON, and their texts."""

COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "eq": operator.eq,
    "neq": operator.ne,
}
"""The functions of these operators, for two values of one type."""

MIRRORED: Final = {"gt": "lt", "gte": "lte", "lt": "gt", "lte": "gte", "eq": "eq", "neq": "neq"}
"""The operators that are true for swapped operands."""
