"""Texts without which an expression cannot be found: what many expressions are told apart by in one pass."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import re2

from engine.patterns.syntax import Assertion, Char, Choice, Repeat, Sequence, Tree

CHARACTERS_MIN: Final = 3
"""Shorter texts are in nearly every text, and tell nothing apart."""

CHARACTERS_MAX: Final = 32
"""Longer texts are cut: what follows hardly tells more apart."""

ALTERNATIVES_MAX: Final = 16

_HALVES: Final = range(0xD800, 0xE000)


class Guard(NamedTuple):
    """One text, and whether the case of its letters is free."""

    text: str
    fold: bool

    def begins(self, text: str) -> int:
        """Give how often it begins in a text of ASCII, or more."""
        count = text.lower().count(self.text.lower()) if self.fold else text.count(self.text)
        # Those that overlap are not counted.
        return count * len(self.text) if self._overlaps() else count

    def _overlaps(self) -> bool:
        folded = self.text.lower()
        return any(folded.startswith(folded[at:]) for at in range(1, len(folded)))


def guard_of(tree: Tree | None) -> str | None:
    """Give an expression of few literals that is found wherever this one is; None if unknown."""
    guards = None if tree is None else _guards(tree)
    if guards is None:
        return None
    return "|".join(_written(guard) for guard in guards)


def leading(tree: Tree | None) -> tuple[Guard, ...] | None:
    """Give texts with one of which every match begins; None if unknown."""
    match tree:
        case Char():
            return leading(Sequence((tree,)))
        case Sequence():
            parts = [part for part in tree.parts if not isinstance(part, Assertion)]
            if parts and not isinstance(parts[0], Char):
                return leading(parts[0])
            end = next((at for at, part in enumerate(parts) if not isinstance(part, Char)), len(parts))
            runs = _runs(tuple(parts[:end]))
            return runs[0] if runs and _begins_with(parts, runs[0][0]) else None
        case Choice():
            each = [leading(part) for part in tree.parts]
            found = tuple(dict.fromkeys(guard for guards in each if guards for guard in guards))
            return None if None in each or len(found) > ALTERNATIVES_MAX else found
        case Repeat() if tree.least > 0:
            return leading(tree.part)
        case _:
            return None


def _begins_with(parts: Iterable[Tree], guard: Guard) -> bool:
    letters = (part.point for part in parts if isinstance(part, Char))
    return all(ord(letter) == point for letter, point in zip(guard.text, letters, strict=False))


def _written(guard: Guard) -> str:
    quoted: str = re2.escape(guard.text)
    return f"(?i:{quoted})" if guard.fold else quoted


def _guards(tree: Tree) -> tuple[Guard, ...] | None:
    """Give texts of which one is in every text that holds the expression."""
    match tree:
        case Char() | Sequence():
            return _of_sequence(tree.parts if isinstance(tree, Sequence) else (tree,))
        case Choice():
            each = [_guards(part) for part in tree.parts]
            found = tuple(dict.fromkeys(guard for guards in each if guards for guard in guards))
            return None if None in each or len(found) > ALTERNATIVES_MAX else found
        case Repeat() if tree.least > 0:
            return _guards(tree.part)
        case _:
            return None


def _of_sequence(parts: tuple[Tree, ...]) -> tuple[Guard, ...] | None:
    """Give the best of what the parts demand: the fewest texts, then the longest."""
    best: tuple[Guard, ...] | None = None
    for candidate in (*_runs(parts), *(_guards(part) for part in parts if not isinstance(part, Char))):
        if candidate is not None and (best is None or _worth(candidate) > _worth(best)):
            best = candidate
    return best


def _worth(guards: tuple[Guard, ...]) -> tuple[int, int]:
    return -len(guards), min(len(guard.text) for guard in guards)


def _runs(parts: tuple[Tree, ...]) -> list[tuple[Guard, ...]]:
    """Give each row of characters that stand directly behind each other, whose case is alike."""
    runs: list[tuple[Guard, ...]] = []
    text, fold = "", False
    for part in (*parts, None):
        if isinstance(part, Assertion):
            continue
        # A half character can be written in an expression, but stands in no text.
        letter = chr(part.point) if isinstance(part, Char) and part.point not in _HALVES else ""
        part_fold = isinstance(part, Char) and part.fold
        if letter and (not text or part_fold is fold):
            text, fold = text + letter, part_fold
            continue
        if len(text) >= CHARACTERS_MIN:
            runs.append((Guard(text[:CHARACTERS_MAX], fold),))
        text, fold = letter, part_fold
    return runs
