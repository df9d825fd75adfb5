"""The shapes that forms have in text: groups of them, and how to make a form of each."""

from collections.abc import Mapping
from typing import Any, Final

from engine.language.condition import Condition
from engine.language.forms.form import Content, Form, Shape

PREFIXES: Final = frozenset({Shape.PREFIX, Shape.PREFIX_WITHIN, Shape.PREFIX_FOR})
INFIXES: Final = frozenset({Shape.INFIX, Shape.INFIX_WITHIN})
CALLS: Final = frozenset({Shape.CALL_OF_CONDITION, Shape.CALL_SINCE, Shape.CALL_OF_FACT})

INNER: Final = {"inner": Content.CONDITION}
SIDES: Final = {"left": Content.CONDITION, "right": Content.CONDITION}
WHERE: Final = {"where": Content.CONDITION}
WINDOW: Final = {"window_secs": Content.WINDOW}
MIN_AGE: Final = {"min_secs": Content.MIN_AGE}
SCALED_FACT: Final = {"fact": Content.NAME, "times": Content.FACTOR}
"""The fields of a fact in the place of the number that a sum or mean is compared with."""


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
    """Return the form of an operator that always has a window, and may have a lower bound to it."""
    bounded = {field: content for field, content in MIN_AGE.items() if field in make.__match_args__}
    optional = frozenset({"boundary", *bounded}) & {*fields, *bounded}
    return Form(
        make=make, name=name, fields={**fields, **bounded}, optional=optional, shape=shape, word=word, **more
    )


def call_of_condition(make: type[Condition], word: str, value: Content, **more: Any) -> Form:
    """Return the form of `word(a) within 10m >= 5`, where the window may be absent."""
    fields = INNER | WINDOW | {"op": Content.COMPARISON, "value": value}
    shape, optional = Shape.CALL_OF_CONDITION, frozenset({"window_secs"})
    return Form(make=make, name=word, fields=fields, optional=optional, shape=shape, word=word, **more)


def call_since(make: type[Condition], word: str, value: Content, **more: Any) -> Form:
    """Return the form of `word(a) since b >= 5`."""
    fields = INNER | {"reset": Content.CONDITION, "op": Content.COMPARISON, "value": value}
    name, shape = f"{word}_since", Shape.CALL_SINCE
    return Form(make=make, name=name, fields=fields, shape=shape, word=word, **more)


def call_of_fact(make: type[Condition], word: str, value: Content, **more: Any) -> Form:
    """Return the form of `word(x where a) within 10m >= 5`, where `where a` and the window may be absent."""
    fields = {"fact": Content.NAME} | WHERE | WINDOW | {"op": Content.COMPARISON, "value": value}
    shape, optional = Shape.CALL_OF_FACT, frozenset({"where", "window_secs"})
    return Form(make=make, name=word, fields=fields, optional=optional, shape=shape, word=word, **more)
