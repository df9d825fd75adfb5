"""Estimates the cost of an expression from its syntax tree, so that the result is reproducible."""

from typing import Final, assert_never

from engine.patterns.syntax.characters import POINT_MAX, Ranges
from engine.patterns.syntax.tree import Assertion, Choice, Class, Opaque, Repeat, Sequence, Text, Tree

_MANY: Final = 10**6
_BRIEF_CLASSES_MAX: Final = 4


def is_plain(tree: Tree) -> bool:
    """Return whether the expression is a single literal, possibly anchored."""
    parts = tree.parts if isinstance(tree, Sequence) else (tree,)
    return all(isinstance(part, Text) or (isinstance(part, Assertion) and not part.word) for part in parts)


def is_brief(tree: Tree) -> bool:
    r"""Return whether it consists of literals, repeated non-letters, and few single characters.

    An example is `host[0-9]+:443`: the next letter that does not belong to it ends a partial match. So a
    thousand such expressions have few states together, if each contains a letter.
    """
    return _brief_classes(tree) <= _BRIEF_CLASSES_MAX


def places(tree: Tree) -> int:
    """Count the characters of the expression with its repetitions written out, up to a million.

    An optional copy counts as one more, because RE2 must also look past it.
    """
    match tree:
        case Text():
            return len(tree.text)
        case Class() | Opaque():
            return 1
        case Assertion():
            return 0
        case Sequence() | Choice():
            return min(_MANY, sum(map(places, tree.parts)))
        case Repeat():
            copies = max(1, tree.least) if tree.most is None else tree.most
            return min(_MANY, places(tree.part) * copies + copies - min(copies, tree.least))
        case _:
            assert_never(tree)


def longest(tree: Tree) -> int | None:
    """Return the maximum length of a match; None if it is unlimited, or more than a million."""
    match tree:
        case Repeat(part, _, most):
            length = longest(part)
            return None if length is None or most is None or length * most > _MANY else length * most
        case Sequence() | Choice():
            lengths = [length for part in tree.parts if (length := longest(part)) is not None]
            if len(lengths) < len(tree.parts):
                return None
            return sum(lengths) if isinstance(tree, Sequence) else max(lengths)
        case _:
            return places(tree)


def _brief_classes(tree: Tree) -> int:
    """Count the classes in the expression; a million if it is not brief."""
    match tree:
        case Text() | Assertion():
            return 0
        case Class():
            return 1
        case Sequence() | Choice():
            return min(_MANY, sum(map(_brief_classes, tree.parts)))
        case Repeat(Text(text), _, most) if not any(map(str.isalpha, text)):
            return 0 if most is None or most <= _BRIEF_CLASSES_MAX else _MANY
        case Repeat(Class(ranges), _, most) if not _has_letters(ranges):
            return 1 if most is None or most <= _BRIEF_CLASSES_MAX else _MANY
        case Repeat(part, 0, 1):
            return _brief_classes(part)
        case Repeat() | Opaque():
            return _MANY
        case _:
            assert_never(tree)


def _has_letters(ranges: Ranges) -> bool:
    """Return whether the ranges contain an ASCII letter or any character beyond ASCII."""
    letters = ((65, 90), (97, 122), (128, POINT_MAX))
    return any(low <= end and start <= high for low, high in ranges for start, end in letters)
