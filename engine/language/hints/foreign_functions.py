"""Relations whose names are those of functions in other languages: hints at what the condition can say."""

from collections.abc import Iterator, Sequence
from typing import Final

from engine.language.condition import FactArg, Scalar
from engine.language.diagnostics import nearest, quoted
from engine.language.forms.shapes import CALLS
from engine.language.text.errors.foreign_words import instead_of
from engine.language.text.lexical.operator_words import words_of

_FUNCTIONS: Final = ("exists", "missing", "startswith", "endswith", "contains")
_NEAR_CHARS_MIN: Final = 5
"""A shorter name is too easily near another."""


def about_function(name: str, args: Sequence[FactArg | Scalar]) -> Iterator[str]:
    """Yield what to write instead if a relation is named like a function, or nearly."""
    fact = next((arg.fact for arg in args if isinstance(arg, FactArg)), "x")
    text = next((arg for arg in args if isinstance(arg, str)), "…")
    instead = instead_of(name, fact, text)
    if instead is None and len(name) >= _NEAR_CHARS_MIN:
        calls = (word for word in words_of(CALLS) if len(word) >= _NEAR_CHARS_MIN)
        near = nearest(name.lower(), (*calls, *_FUNCTIONS))
        instead = None if near is None or name.lower() == f"{near}s" else instead_of(near, fact, text)
    if instead is not None:
        yield f"{quoted(name)} is no function here: what looks like one looks in a relation; {instead}"
