"""The tree of an expression, as far as its cost depends on it."""

from dataclasses import dataclass

from engine.patterns.syntax.characters import Ranges


@dataclass(frozen=True, slots=True)
class Text:
    """One or more literal characters; `fold` if their case is ignored."""

    text: str
    fold: bool


@dataclass(frozen=True, slots=True)
class Class:
    """One of several characters."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Opaque:
    """One character of an unknown set."""


@dataclass(frozen=True, slots=True)
class Assertion:
    """A zero-width assertion. With `text_start`, it holds only at the start of a text."""

    text_start: bool
    word: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts that follow one another."""

    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives."""

    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part repeated `least` to `most` times; without an upper bound if `most` is None."""

    part: "Tree"
    least: int
    most: int | None


Tree = Text | Class | Opaque | Assertion | Sequence | Choice | Repeat
