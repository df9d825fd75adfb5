"""Patterns that methods of `str` decide exactly: literals, anywhere or at one end of a text."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from engine.patterns.syntax.characters import POINT_MAX
from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Assertion, Class, Repeat, Sequence, Text, Tree

KEPT_MAX: Final = 4_096
_DOT_ALL: Final = "(?s)"
_FOLDED: Final = ("(?i)", "(?si)")
_ANY_TEXT: Final = Repeat(Class(((0, POINT_MAX),)), 0, None)


class Literal(NamedTuple):
    """A text that a pattern searches for."""

    text: str
    at_start: bool
    at_end: bool

    def code(self, text: str, wanted: str) -> str:
        """Return the expression for whether a text contains it, given the names of the two."""
        if self.at_start and self.at_end:
            return f"{text} == {wanted}"
        if self.at_start or self.at_end:
            return f"{text}.{'startswith' if self.at_start else 'endswith'}({wanted})"
        return f"{wanted} in {text}"

    def test(self, fits: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return a function that tests whether a text contains it and also passes another test."""
        wanted = self.text
        if self.at_start and self.at_end:
            return lambda text: text == wanted and fits(text)
        if self.at_start:
            return lambda text: text.startswith(wanted) and fits(text)
        if self.at_end:
            return lambda text: text.endswith(wanted) and fits(text)
        return lambda text: wanted in text and fits(text)


@lru_cache(KEPT_MAX)
def literal_of(pattern: str) -> Literal | None:
    """Return the literal that a case-sensitive pattern searches for; None for any other pattern."""
    rest = pattern.removeprefix(_DOT_ALL)
    return None if "(?" in rest else _literal(read(pattern))


def folded_literal_of(pattern: str, tree: Tree | None) -> Literal | None:
    """Return the literal of ASCII characters, in lower case, that a case-insensitive pattern searches for.

    An ASCII text contains it if its lower case does. In other texts, RE2 also accepts U+017F for an "s" and
    U+212A for a "k".
    """
    flags = next((flags for flags in _FOLDED if pattern.startswith(flags)), None)
    if flags is None or not pattern.isascii() or "(?" in pattern[len(flags) :]:
        return None
    found = _literal(tree)
    return found and found._replace(text=found.text.lower())


def _literal(tree: Tree | None) -> Literal | None:
    """Return the literal of a tree, which may have anchors, or `.*` at its ends."""
    parts: list[Tree | None] = [*tree.parts] if isinstance(tree, Sequence) else [tree]
    at_start = _taken(parts, 0, Assertion(text_start=True, word=False))
    at_end = _taken(parts, -1, Assertion(text_start=False, word=False))
    # After a prefix of any text, the literal may begin anywhere.
    while _taken(parts, 0, _ANY_TEXT):
        at_start = False
    while _taken(parts, -1, _ANY_TEXT):
        at_end = False
    match parts:
        case []:
            return Literal("", at_start, at_end)
        case [Text(text)]:
            return Literal(text, at_start, at_end)
        case _:
            return None


def _taken(parts: list[Tree | None], place: int, part: Tree) -> bool:
    """Remove a part from an end, if it is there. Return whether it was."""
    is_there = bool(parts) and parts[place] == part
    if is_there:
        del parts[place]
    return is_there
