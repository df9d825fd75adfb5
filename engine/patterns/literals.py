"""Finds the literals of an expression: those that each match contains, and those that each begins with."""

import re
from itertools import chain
from typing import Final

import re2

from engine.patterns.syntax.tree import Assertion, Choice, Repeat, Sequence, Text, Tree

CHARACTERS_MIN: Final = 3
"""Shorter literals are in nearly every text, so they are not selective."""

CHARACTERS_MAX: Final = 32
"""Longer literals are truncated: the rest hardly makes them more selective."""

ALTERNATIVES_MAX: Final = 16

_HALF: Final = re.compile("[\ud800-\udfff]")


def guard_of(tree: Tree | None) -> str | None:
    """Return an expression of few literals that matches wherever this one does, or None if none is known."""
    guards = _contained(tree)
    return None if guards is None else "|".join(map(_written, guards))


def leading(tree: Tree | None) -> tuple[Text, ...] | None:
    """Return literals such that each match begins with one of them, or None if none are known."""
    match tree:
        case Text():
            return _cut(tree)
        case Sequence():
            return leading(next((part for part in tree.parts if not isinstance(part, Assertion)), None))
        case Choice():
            return _any_of([leading(part) for part in tree.parts])
        case Repeat() if tree.least > 0:
            return leading(tree.part)
        case _:
            return None


def beginnings(literal: Text, text: str) -> int:
    """Return an upper bound of the number of places where a literal begins in an ASCII text."""
    # For RE2, U+017F is an "s", for `lower` it is not. What else `casefold` changes is in no ASCII text.
    wanted = literal.text.casefold()
    # `count` skips overlapping occurrences.
    times = len(wanted) if any(wanted.startswith(wanted[at:]) for at in range(1, len(wanted))) else 1
    return times * (text.lower().count(wanted) if literal.fold else text.count(literal.text))


def _contained(tree: Tree | None) -> tuple[Text, ...] | None:
    """Return literals such that each match contains one of them: preferably few, then long ones."""
    match tree:
        case Text():
            return _cut(tree)
        case Sequence():
            found = (guards for part in tree.parts if (guards := _contained(part)) is not None)
            return max(
                found, key=lambda texts: (-len(texts), min(len(one.text) for one in texts)), default=None
            )
        case Choice():
            return _any_of([_contained(part) for part in tree.parts])
        case Repeat() if tree.least > 0:
            return _contained(tree.part)
        case _:
            return None


def _cut(tree: Text) -> tuple[Text, ...] | None:
    """Truncate the literal, or give None if it is too short or no text can contain it."""
    if len(tree.text) < CHARACTERS_MIN or _HALF.search(tree.text):
        return None
    return (Text(tree.text[:CHARACTERS_MAX], tree.fold),)


def _any_of(each: list[tuple[Text, ...] | None]) -> tuple[Text, ...] | None:
    found = tuple(dict.fromkeys(chain.from_iterable(texts for texts in each if texts)))
    return None if None in each or len(found) > ALTERNATIVES_MAX else found


def _written(literal: Text) -> str:
    quoted: str = re2.escape(literal.text)
    return f"(?i:{quoted})" if literal.fold else quoted
