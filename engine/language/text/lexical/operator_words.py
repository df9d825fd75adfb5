"""The words of operators, by how they stand in a text."""

from collections.abc import Set as AbstractSet

from engine.language.forms.form import Shape
from engine.language.forms.table import FORMS


def words_of(shapes: AbstractSet[Shape], *, additions: bool = True) -> list[str]:
    """Return the words of the forms of these shapes in the order of the table, with or without additions."""
    forms = (form for form in FORMS.values() if form.shape in shapes and (additions or not form.is_addition))
    return [*dict.fromkeys(form.word for form in forms)]


def terminals_of(shapes: AbstractSet[Shape], *, additions: bool = True) -> frozenset[str]:
    """Return the terminals of the same words."""
    return frozenset(word.upper() for word in words_of(shapes, additions=additions))
