"""Reads RE2's syntax into a tree, as far as the cost of an expression depends on it.

It accepts only expressions that RE2 accepts. The tree decides the cost of an expression and which texts
cannot match it, so it may be imprecise or missing, but never wrong: unknown syntax results in no tree.
"""

import re
from typing import Final

from engine.patterns.syntax.characters import PERL, POINT_MAX, POSIX, Ranges, complement, folded, other_case
from engine.patterns.syntax.tree import Assertion, Choice, Class, Opaque, Repeat, Sequence, Text, Tree

_DEPTH_MAX: Final = 50

_COUNTS: Final = re.compile(r"\{(0|[1-9][0-9]{0,3})(,(0|[1-9][0-9]{0,3})?)?\}")
"""`{n}`, `{n,}` or `{n,m}`, up to a thousand. With a leading zero, RE2 reads literal characters."""

_LITERALS: Final = re.compile(r"(?:[^\\.\[(){*+?^$|]|\\[^A-Za-z0-9])+(?![*+?{])")
"""Literal characters, up to a repeated one. Linear: a match backtracks by at most one character."""
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)

_CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


def read(pattern: str) -> Tree | None:
    """Return the tree of an expression that RE2 accepts; None if it has syntax that is unknown here."""
    reader = _Reader(pattern)
    try:
        tree = reader.choice()
    except (_NotKnownError, LookupError, ValueError):
        return None
    return tree if reader.at == len(pattern) else None


class _NotKnownError(Exception):
    """The expression has syntax that is unknown here."""


class _Reader:
    """Reads from left to right. The flags are those of the innermost group."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0
        self._depth = 0
        self._fold = self._lines = self._dot_all = False

    def choice(self) -> Tree:
        """Read to the end of the group, or of the expression."""
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _NotKnownError
        branches = [self._sequence()]
        while self._next("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self._pattern) and self._pattern[self.at] not in "|)":
            literals = _LITERALS.match(self._pattern, self.at)
            if literals is not None:
                self.at = literals.end()
                part: Tree | None = Text(_ESCAPED.sub(r"\1", literals[0]), self._fold)
            else:
                part = self._atom()
            if part is None:
                continue
            part = self._repeated(part)
            match part, parts:
                case Text(text, fold), [*_, Text(before, fold_before)] if fold is fold_before:
                    parts[-1] = Text(before + text, fold)
                case _:
                    parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Tree) -> Tree:
        while self.at < len(self._pattern):
            counts = self._times()
            if counts is None:
                return part
            self._next("?")  # Lazy or not: what is found is the same.
            part = Repeat(part, *counts)
        return part

    def _times(self) -> tuple[int, int | None] | None:
        """Read a repetition; None if there is none."""
        match self._pattern[self.at]:
            case "*":
                counts: tuple[int, int | None] = 0, None
            case "+":
                counts = 1, None
            case "?":
                counts = 0, 1
            case "{":
                return self._counts()
            case _:
                return None
        self.at += 1
        return counts

    def _counts(self) -> tuple[int, int | None] | None:
        """Read counts in braces. Other braces are literals."""
        counts = _COUNTS.match(self._pattern, self.at)
        if counts is None:
            return None
        self.at = counts.end()
        least, comma, most = counts.groups()
        if not comma:
            return int(least), int(least)
        return int(least), int(most) if most else None

    def _atom(self) -> Tree | None:
        """Read one atom; None for flags, which apply from here to the end of the group."""
        letter = self._pattern[self.at]
        self.at += 1
        match letter:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return Class(((0, POINT_MAX),) if self._dot_all else complement(((10, 10),)))
            case "^":
                return Assertion(not self._lines, word=False)
            case "$":
                return Assertion(text_start=False, word=False)
            case "\\":
                return self._escape()
            case _:
                return Text(letter, self._fold)

    def _group(self) -> Tree | None:
        flags = self._fold, self._lines, self._dot_all
        if self._next("?"):
            if self._next("P<") or self._next("<"):
                self.at = self._pattern.index(">", self.at) + 1
            elif self._flags():
                return None
        inner = self.choice()
        if not self._next(")"):
            raise _NotKnownError
        self._fold, self._lines, self._dot_all = flags
        return inner

    def _flags(self) -> bool:
        """Read flags up to a colon or parenthesis. Return whether it was the parenthesis."""
        on = True
        while True:
            letter = self._pattern[self.at]
            self.at += 1
            match letter:
                case "i":
                    self._fold = on
                case "m":
                    self._lines = on
                case "s":
                    self._dot_all = on
                case "U":
                    pass
                case "-":
                    on = False
                case ":" | ")":
                    return letter == ")"
                case _:
                    raise _NotKnownError

    def _escape(self) -> Tree:
        letter = self._pattern[self.at]
        self.at += 1
        match letter:
            case "A":
                return Assertion(text_start=True, word=False)
            case "z":
                return Assertion(text_start=False, word=False)
            case "b" | "B":
                return Assertion(text_start=False, word=True)
            case "d" | "w" | "s" | "D" | "W" | "S":
                return self._of(self._perl(letter))
            case "p" | "P":
                return self._opaque_class()
            case _:
                self.at -= 1
                return Text(chr(self._escaped_point()), self._fold)

    def _opaque_class(self) -> Opaque:
        self.at = self._pattern.index("}", self.at) + 1 if self._pattern[self.at] == "{" else self.at + 1
        return Opaque()

    def _escaped_point(self) -> int:
        letter = self._pattern[self.at]
        self.at += 1
        if letter == "x":
            if self._next("{"):
                end = self._pattern.index("}", self.at)
                digits, self.at = self._pattern[self.at : end], end + 1
            else:
                digits, self.at = self._pattern[self.at : self.at + 2], self.at + 2
            return int(digits, 16)
        if letter in _CONTROL:
            return _CONTROL[letter]
        if letter.isascii() and letter.isalnum():
            # Octal numbers, \Q and \C are rare, and have many rules of their own.
            raise _NotKnownError
        return ord(letter)

    def _class(self) -> Tree:
        negated = self._next("^")
        ranges: list[tuple[int, int]] = []
        first = True
        opaque = False
        while first or self._pattern[self.at] != "]":
            first = False
            if self._next("[:"):
                end = self._pattern.index(":]", self.at)
                name, self.at = self._pattern[self.at : end], end + 2
                ranges.extend(self._named(POSIX[name.lstrip("^")], negated=name.startswith("^")))
                continue
            if self._pattern[self.at] == "\\" and self._pattern[self.at + 1] in "dwsDWSpP":
                letter = self._pattern[self.at + 1]
                self.at += 2
                if letter in "pP":
                    self._opaque_class()
                    opaque = True
                else:
                    ranges.extend(self._perl(letter))
                continue
            low = high = self._class_point()
            if self._pattern[self.at] == "-" and self._pattern[self.at + 1] != "]":
                self.at += 1
                high = self._class_point()
            ranges.append((low, high))
        self.at += 1
        if opaque:
            return Opaque()
        if negated:
            return Class(complement((*ranges, *other_case(tuple(ranges))) if self._fold else tuple(ranges)))
        return self._of(tuple(ranges))

    def _class_point(self) -> int:
        if self._next("\\"):
            return self._escaped_point()
        self.at += 1
        return ord(self._pattern[self.at - 1])

    def _perl(self, letter: str) -> Ranges:
        return self._named(PERL[letter.lower()], negated=letter.isupper())

    def _named(self, ranges: Ranges, *, negated: bool) -> Ranges:
        """Return a named class. Its negation has no character that folds into the class."""
        if not negated:
            return ranges
        return complement(folded(ranges) if self._fold else ranges)

    def _of(self, ranges: Ranges) -> Class:
        return Class(folded(ranges) if self._fold else ranges)

    def _next(self, expected: str) -> bool:
        """Skip the expected text if it comes next. Return whether it did."""
        there = self._pattern.startswith(expected, self.at)
        self.at += len(expected) if there else 0
        return there
