"""The words of a text and of operators, and which of their terminals stand for what."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from engine.language.forms.form import Shape
from engine.language.forms.table import FORMS
from engine.language.operators import COMPARISONS, INEQUALITIES, OPERATORS

END = "$END"
"""The terminal at the end of the text."""
NAMES = frozenset({"WORD", "PATH", "BACKQUOTED"})
LITERALS = frozenset({"STRING", "VERBATIM", "NUMBER", "TRUE", "FALSE", "OPEN"})
"""The terminals that begin a literal."""
DURATIONS = frozenset({"NUMBER", "DURATION"})
ARITHMETIC = frozenset({"PLUS", "MINUS", "STAR", "SLASH"})

OPERATOR_TERMINALS = {operator.text: operator.terminal for operator in OPERATORS.values()} | INEQUALITIES
"""The terminals of the operators of predicates, by their texts."""
COMPARISON_TERMINALS = frozenset(OPERATOR_TERMINALS[text] for text in COMPARISONS.values())
"""The terminals of the operators of aggregates."""


class Word(NamedTuple):
    """A token of the text: its terminal, its text, its offset."""

    terminal: str
    text: str
    offset: int


def words_of(shapes: AbstractSet[Shape]) -> list[str]:
    """Return the words of the forms of these shapes in the order of the table."""
    return [*dict.fromkeys(form.word for form in FORMS.values() if form.shape in shapes)]


def terminals_of(shapes: AbstractSet[Shape]) -> frozenset[str]:
    """Return the terminals of the same words."""
    return frozenset(map(str.upper, words_of(shapes)))
