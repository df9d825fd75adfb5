"""The form of a condition or a term: its JSON, its text, and its description in messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from engine.language.condition import Condition


class Content(Enum):
    """The content of a field of a form."""

    # Faster than an enumeration's own hash, which is computed from the name.
    __hash__ = object.__hash__

    CONDITION = "condition"
    CONDITIONS = "conditions"
    NAME = "name"
    RELATION = "relation"
    ARGUMENTS = "arguments"
    LEAF_OP = "leaf operator"
    REF_OP = "ref operator"
    OPERAND = "operand"
    WINDOW = "window"
    MIN_AGE = "least age"
    BOUNDARY = "boundary"
    COMPARISON = "comparison"
    COUNT = "count"
    AMOUNT = "amount"
    FACTOR = "factor"
    TERM = "term"
    TERMS = "terms"
    TWO_TERMS = "two terms"
    PART = "part of the time"
    ZONE = "time zone"
    EARLIER = "earlier"
    NETWORKS = "networks"


TERM_CONTENTS: Final = frozenset({Content.TERM, Content.TERMS, Content.TWO_TERMS})
_NESTED: Final = TERM_CONTENTS | {Content.CONDITION, Content.CONDITIONS}
_ARRAYS: Final = frozenset({Content.CONDITIONS, Content.TERMS, Content.TWO_TERMS})


class Shape(Enum):
    """How the text of a form is built around its word."""

    PREFIX = "once a"
    PREFIX_WITHIN = "once within 10m a"
    PREFIX_FOR = "historically for 10m a"
    INFIX = "a since b"
    INFIX_WITHIN = "a since within 10m b"
    CALL_OF_CONDITION = "count(a) within 10m >= 5"
    CALL_SINCE = "count(a) since b >= 5"
    CALL_OF_FACT = "sum(x where a) within 10m >= 5"


@dataclass(frozen=True)
class Counted:
    """The JSON types of a fact that an operator counts, such as `a number`."""

    types: frozenset[str]
    otherwise: str
    """The end of the warning if no event has one of these types."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Form:
    """A form of a condition or a term: its class, its name in JSON, and the contents of its fields."""

    make: type[Any]
    name: str
    fields: Mapping[str, Content]
    """The fields of the class, named and ordered as in JSON."""
    optional: frozenset[str] = frozenset()
    is_bare: bool = False
    """Whether JSON has the value of the only field where other forms have an object of fields."""
    text: str = ""
    """The meaning, for the description of the interface. Bare forms have none there."""
    is_addition: bool = False
    """Whether it was added to the language. The word of an addition is still a name wherever a name can
    be."""
    shape: Shape | None = None
    """None for terms, predicates, connectives and `per`, which the grammar itself defines."""
    word: str = ""
    synonyms: frozenset[str] = frozenset()
    """Names of similar operators in other languages, in lower case."""
    looks_back: bool = False
    """Whether it depends on other events than the current one, apart from the conditions inside it."""
    looks_before: bool = False
    """Whether only earlier events can make it true, never the current one."""
    counted: Counted | None = None
    """The types that the first fact among the fields must have to be counted."""

    nested: tuple[tuple[str, bool], ...] = field(init=False)
    """The fields that hold conditions or terms, and whether each holds an array of them."""

    def __post_init__(self) -> None:
        """Compute what follows from the fields and the shape."""
        nested = [(name, content in _ARRAYS) for name, content in self.fields.items() if content in _NESTED]
        object.__setattr__(self, "nested", tuple(nested))
        object.__setattr__(self, "looks_back", self.looks_back or self.shape is not None)


# -- how to make a form of each shape -----------------------------------------------------------------------

PREFIXES: Final = frozenset({Shape.PREFIX, Shape.PREFIX_WITHIN, Shape.PREFIX_FOR})
INFIXES: Final = frozenset({Shape.INFIX, Shape.INFIX_WITHIN})
CALLS: Final = frozenset({Shape.CALL_OF_CONDITION, Shape.CALL_SINCE, Shape.CALL_OF_FACT})

INNER: Final = {"inner": Content.CONDITION}
SIDES: Final = {"left": Content.CONDITION, "right": Content.CONDITION}
WHERE: Final = {"where": Content.CONDITION}
WINDOW: Final = {"window_secs": Content.WINDOW}
MIN_AGE: Final = {"min_secs": Content.MIN_AGE}
SCALED_FACT: Final = {"fact": Content.NAME, "times": Content.FACTOR}
"""The fields of a fact that replaces the number with which a sum or mean is compared."""


def prefix(make: type[Condition], word: str, **more: Any) -> Form:
    """Return the form of `word a`."""
    return Form(make=make, name=word, fields=INNER, is_bare=True, shape=Shape.PREFIX, word=word, **more)


def prefix_within(make: type[Condition], word: str, **more: Any) -> Form:
    """Return the form of `word within 10m a` and, if the class has `min_secs`, `word within [5m, 10m] a`."""
    return _windowed(make, f"{word}_within", INNER | WINDOW, Shape.PREFIX_WITHIN, word, **more)


def prefix_for(make: type[Condition], word: str, **more: Any) -> Form:
    """Return the form of `word for 10m a`, with or without `weak` or `strong` after the window."""
    fields = INNER | WINDOW | {"boundary": Content.BOUNDARY}
    return _windowed(make, f"{word}_for", fields, Shape.PREFIX_FOR, word, **more)


def infix(make: type[Condition], word: str, **more: Any) -> Form:
    """Return the form of `a word b`."""
    return Form(make=make, name=word, fields=SIDES, shape=Shape.INFIX, word=word, **more)


def infix_within(make: type[Condition], word: str, **more: Any) -> Form:
    """Return the form of `a word within 10m b`."""
    return _windowed(make, f"{word}_within", SIDES | WINDOW, Shape.INFIX_WITHIN, word, **more)


def _windowed(
    make: type[Condition], name: str, fields: Mapping[str, Content], shape: Shape, word: str, **more: Any
) -> Form:
    """Return the form of an operator that always has a window, and may have a minimum age."""
    bounded = {field: content for field, content in MIN_AGE.items() if field in make.__match_args__}
    optional = frozenset({"boundary", *bounded}) & {*fields, *bounded}
    return Form(
        make=make, name=name, fields={**fields, **bounded}, optional=optional, shape=shape, word=word, **more
    )


def call_of_condition(make: type[Condition], word: str, value: Content, **more: Any) -> Form:
    """Return the form of `word(a) within 10m >= 5`, with an optional window."""
    fields = INNER | WINDOW | {"op": Content.COMPARISON, "value": value}
    shape, optional = Shape.CALL_OF_CONDITION, frozenset({"window_secs"})
    return Form(make=make, name=word, fields=fields, optional=optional, shape=shape, word=word, **more)


def call_since(make: type[Condition], word: str, value: Content, **more: Any) -> Form:
    """Return the form of `word(a) since b >= 5`."""
    fields = INNER | {"reset": Content.CONDITION, "op": Content.COMPARISON, "value": value}
    name, shape = f"{word}_since", Shape.CALL_SINCE
    return Form(make=make, name=name, fields=fields, shape=shape, word=word, **more)


def call_of_fact(make: type[Condition], word: str, value: Content, **more: Any) -> Form:
    """Return the form of `word(x where a) within 10m >= 5`, with optional `where a` and window."""
    fields = {"fact": Content.NAME} | WHERE | WINDOW | {"op": Content.COMPARISON, "value": value}
    shape, optional = Shape.CALL_OF_FACT, frozenset({"where", "window_secs"})
    return Form(make=make, name=word, fields=fields, optional=optional, shape=shape, word=word, **more)
