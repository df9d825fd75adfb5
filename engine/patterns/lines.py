"""Searches long texts line by line, and caches the results for each line, because most lines of logs recur.

An event of PowerShell, for example, repeats the command line of its process in each of thousands of texts.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, Generic, TypeVar

from engine.patterns.syntax.tree import Assertion, Choice, Class, Repeat, Sequence, Text, Tree

T = TypeVar("T")

LONG_BYTES_MIN: Final = 512
"""Shorter texts are searched as a whole."""

LINES_MAX: Final = 128
LINE_BYTES_MIN: Final = 16
"""Texts with more lines, or with shorter lines on average, are searched as a whole: searching a line takes a
microsecond, however short it is."""

KEPT_BYTES_MAX: Final = 128 * 1024
KEPT_LINE_BYTES: Final = 150
"""The size of the cached lines, which may reach twice this, and the size of each line besides its bytes."""

_NEWLINE: Final = ord("\n")
_MULTILINE: Final = re.compile(r"\(\?[a-zA-Z-]*m")


class Line(Enum):
    """The lines of a text that can contain a whole match of an expression."""

    ANY = "any"
    FIRST = "first"
    LAST = "last"
    NONE = "none"
    """No line: a match may span several lines."""


def line_of(pattern: str, tree: Tree | None) -> Line:
    """Return which lines contain the matches of an expression, so that these can be searched separately."""
    # With this flag, the anchors of a text also match at those of its lines.
    if tree is None or _MULTILINE.search(pattern):
        return Line.NONE
    parts = tree.parts if isinstance(tree, Sequence) else (tree,)
    first = parts[:1] == (Assertion(text_start=True, word=False),)
    last = parts[-1:] == (Assertion(text_start=False, word=False),)
    if (first and last) or not all(map(_is_inside, parts[first : len(parts) - last])):
        return Line.NONE
    return Line.FIRST if first else Line.LAST if last else Line.ANY


def line_of_literals(written: str | None) -> Line:
    """Return the same for alternatives that are literals, as RE2 writes them."""
    return Line.NONE if written is None or "\n" in written else Line.ANY


def _is_inside(tree: Tree) -> bool:
    """Return whether each match is inside a line, and is also a match in that line alone."""
    match tree:
        case Text():
            return "\n" not in tree.text
        case Class():
            return not any(low <= _NEWLINE <= high for low, high in tree.ranges)
        case Sequence() | Choice():
            return all(map(_is_inside, tree.parts))
        case Repeat():
            return _is_inside(tree.part)
        case _:
            # An assertion may see text outside the line; the characters of Opaque are unknown.
            return False


class KeptLines(Generic[T]):
    """A cache of the results for lines, each with the lines in which it counts."""

    def __init__(self) -> None:
        self._kept: dict[bytes, list[tuple[T, Line]]] = {}
        self._older: dict[bytes, list[tuple[T, Line]]] = {}
        """The lines to be dropped next, unless they recur."""
        self._bytes = 0

    def found(self, text: bytes, search: Callable[[bytes], list[tuple[T, Line]]]) -> list[T] | None:
        """Return the results for the lines of a text, perhaps with repetitions. Search uncached lines.

        None if the text is short or has too many lines, and must be searched as a whole.
        """
        if len(text) < LONG_BYTES_MIN:
            return None
        count = text.count(b"\n")
        if not count or count >= min(LINES_MAX, len(text) // LINE_BYTES_MIN):
            return None
        lines = text.split(b"\n")
        inside = list(map(self._kept.get, lines))
        if None in inside:
            inside = [
                self._keep(line, search) if one is None else one
                for line, one in zip(lines, inside, strict=True)
            ]
        return [
            each
            for number, found in enumerate(inside)
            if found
            for each, where in found
            if where is Line.ANY or number == (0 if where is Line.FIRST else count)
        ]

    def forget(self) -> None:
        """Clear the cache, because the expressions have changed."""
        self._kept.clear()
        self._older = {}
        self._bytes = 0

    def _keep(self, line: bytes, search: Callable[[bytes], list[tuple[T, Line]]]) -> list[tuple[T, Line]]:
        found = self._older.get(line)
        if found is None:
            found = search(line)
        if self._bytes > KEPT_BYTES_MAX:
            self._older, self._bytes = self._kept, 0
            self._kept = {}
        self._bytes += len(line) + KEPT_LINE_BYTES
        self._kept[line] = found
        return found
