"""What texts are made of: words, and which of their terminals stand for what; parts that have a value."""

from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from engine.language.forms.form import Shape
from engine.language.forms.table import FORMS
from engine.language.json.spans import SpannedObject
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


class Part(NamedTuple):
    """A name, a literal, a term or a window, and the offset at which it begins in the text."""

    value: Any
    offset: int


class Ages(NamedTuple):
    """The least and the greatest age of the events that count."""

    least: Part
    greatest: Part


class Filtered(NamedTuple):
    """The fact between the parentheses of an aggregate or `last`, and the condition after its `where`."""

    fact: Part
    where: SpannedObject | None = None

    @property
    def members(self) -> dict[str, object]:
        """The members of the document."""
        return {"fact": self.fact} | ({} if self.where is None else {"where": self.where})


def words_of(shapes: AbstractSet[Shape]) -> list[str]:
    """Return the words of the forms of these shapes in the order of the table."""
    return [*dict.fromkeys(form.word for form in FORMS.values() if form.shape in shapes)]


def terminals_of(shapes: AbstractSet[Shape]) -> frozenset[str]:
    """Return the terminals of the same words."""
    return frozenset(map(str.upper, words_of(shapes)))
