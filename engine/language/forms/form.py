"""What a form of a condition is: how it looks in JSON and in text, and what messages say of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from engine.language.condition import Condition


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


class Shape(Enum):
    """How the text of a form is built around its word."""

    PREFIX = "once a"
    PREFIX_WITHIN = "once within 10m a"
    PREFIX_FOR = "historically for 10m a"
    INFIX = "a since b"
    INFIX_WITHIN = "a since within 10m b"
    CALL_OF_CONDITION = "count(a) within 10m >= 5"
    CALL_OF_FACT = "sum(x where a) within 10m >= 5"


@dataclass(frozen=True)
class Counted:
    """The JSON types of a fact that an operator counts, such as `a number`."""

    types: frozenset[str]
    otherwise: str
    """The end of the warning that no event has one of these types."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Form:
    """One form of a condition: its class, its name in JSON, and what its fields hold."""

    make: type[Condition]
    name: str
    fields: Mapping[str, Content]
    """The fields of the class, named and ordered as in JSON."""
    optional: frozenset[str] = frozenset()
    is_bare: bool = False
    """Whether JSON has the value of the only field where other forms have an object of fields."""
    text: str = ""
    """What it means, for the description of the interface. Bare forms have none there."""
    is_addition: bool = False
    """Whether it adds to the language. The word of an addition is still a name where none is expected."""
    shape: Shape | None = None
    """None for predicates, connectives and `per`, which the grammar itself has."""
    word: str = ""
    synonyms: frozenset[str] = frozenset()
    """The names of what is nearly the same in other languages, in lower case."""
    looks_before: bool = False
    """Whether the current event never makes it true, only those before it."""
    counted: Counted | None = None
    """Of the fields that are facts, what the first has to be."""
