"""Error messages for callers: codes, positions, carets, suggestions, and common phrases."""

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

UNREADABLE = 1300
INVALID = 1301
BAD_PATTERN = 1302
TOO_LARGE = 1303

LINE_CHARS_MAX = 160
"""The maximum length of a line in a message. Of a longer line, the part around the position is shown."""

QUOTED_CHARS_MAX = 60
"""A message quotes at most this much of the caller's text."""

_ELLIPSIS = "…"


class Entry(NamedTuple):
    """An entry of `errors` or `messages` in a reply. Codes start at 1000."""

    code: int
    message: str


class Refusal(Exception):
    """An error of the caller: one or more entries of one kind, in the order of the report.

    The operation that raises it has changed nothing.
    """

    def __init__(self, *entries: Entry) -> None:
        assert entries, "a refusal has a reason"
        super().__init__("\n".join(entry.message for entry in entries))
        self.entries = entries

    @property
    def code(self) -> int:
        """The code of the first entry. It decides the status of the reply."""
        return self.entries[0].code

    def kept(self) -> Self:
        """Return the refusal without its traceback, for storing it.

        The frames of a traceback keep their variables, such as the events of a batch, and perhaps a
        collection that contains the refusal. Only the garbage collector would free such a cycle.
        """
        return self.with_traceback(None)

    def __reduce__(self) -> tuple[Callable[..., "Refusal"], tuple[Entry, ...]]:
        """Pickle the entries only."""
        return type(self), self.entries


class ConditionError(Refusal):
    """A refused condition: 1300 unreadable, 1301 invalid, 1302 a bad pattern, 1303 too large."""


class Position(NamedTuple):
    """The position of a character: line and column, both from 1. Columns count characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(eq=False)
class Source:
    """A text of a caller, with methods to point into it."""

    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        while start := self.text.find("\n", starts[-1]) + 1:
            starts.append(start)
        return starts

    def position(self, offset: int) -> Position:
        """Return the position of the character at `offset`. The end of the text counts as a character."""
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    def annotated(self, offset: int, sentence: str) -> str:
        """Return the position and the sentence, the line of the text, and a caret below the position."""
        return f"{self.position(offset)}: {sentence}\n{self.excerpt(offset)}"

    def located(self, offset: int, sentence: str) -> str:
        """Return the sentence, and the position after it."""
        return f"{sentence} ({self.position(offset)})"

    def excerpt(self, offset: int) -> str:
        """Return the line of the text, and a caret below the position."""
        position = self.position(offset)
        start = self._line_starts[position.line - 1]
        stop = self.text.find("\n", start)
        line = self.text[start : stop if stop >= 0 else len(self.text)].rstrip("\r")
        shown, before = _excerpt(line, position.column - 1)
        return f"{shown}\n{_padding(shown[:before])}^"

    def refusal(self, offset: int, sentence: str) -> ConditionError:
        """Return the error 1300 for a text that cannot be read beyond `offset`."""
        return ConditionError(Entry(UNREADABLE, self.annotated(offset, sentence)))


def cut(text: str, chars_max: int) -> str:
    """Return a text, with an ellipsis in place of everything after `chars_max` characters."""
    return text if len(text) <= chars_max else text[:chars_max] + _ELLIPSIS


def quoted(text: str) -> str:
    """Quote a caller's text for a message: in backquotes, shortened, printable."""
    if len(text) > QUOTED_CHARS_MAX:
        text = cut(text, QUOTED_CHARS_MAX - 1)
    return f"`{printable(text)}`"


def found(text: str) -> str:
    """Describe what a text contains: quoted, or by code point if it is a single invisible character."""
    if len(text) == 1 and (text.isspace() or _unfit(text)):
        return f"the character U+{ord(text):04X}"
    return quoted(text)


def enumerated(phrases: Sequence[str], conjunction: str = "or") -> str:
    """Join phrases: `a, b or c`."""
    *most, last = phrases
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` most probably misspells, if any."""
    distance, near = min(((edit_distance(word, other), other) for other in known), default=(3, None))
    return near if distance <= typos_max(word) else None


def typos_max(word: str) -> int:
    """Return the maximum number of typos to expect in a word of this length."""
    short = 3
    return 1 if len(word) <= short else 2


def edit_distance(word: str, other: str) -> int:
    """Return the number of typos between two words, ignoring case; 3 if their lengths differ by 3 or more.

    A typo is a missing, extra or wrong letter, or two swapped neighbours. This is the restricted
    Damerau-Levenshtein distance.
    """
    word, other = word.lower(), other.lower()
    bound = 3
    if abs(len(word) - len(other)) >= bound:
        return bound
    before_last: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(word, start=1):
        current = [row]
        for column, wanted in enumerate(other, start=1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != wanted))
            swapped = row > 1 and column > 1 and letter == other[column - 2] and word[row - 2] == wanted
            current.append(min(cost, before_last[column - 2] + 1) if swapped else cost)
        before_last, last = last, current
    return last[-1]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the nearest known word; empty if none is near."""
    near = nearest(word, known)
    return f"; did you mean `{near}`?" if near else ""


def json_type(value: object) -> str:
    """Name the JSON type of a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case Mapping():
            return "an object"
        case _:
            return "a value that is not JSON"


def printable(text: str) -> str:
    """Replace each character that is invisible, moves the cursor or cannot be encoded with a visible one."""
    return "".join(" " if char == "\t" else "\ufffd" if _unfit(char) else char for char in text)


def _unfit(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _excerpt(line: str, index: int) -> tuple[str, int]:
    """Return the part of a line around an index, and the index in that part."""
    line = "".join("\t" if char == "\t" else printable(char) for char in line)
    start = max(0, min(index - LINE_CHARS_MAX // 2, len(line) - LINE_CHARS_MAX))
    stop = start + LINE_CHARS_MAX
    head, tail = _ELLIPSIS if start else "", _ELLIPSIS if stop < len(line) else ""
    return f"{head}{line[start:stop]}{tail}", index - start + len(head)


def _padding(before: str) -> str:
    """Return blanks that are as wide on a terminal as the given text."""
    return "".join("\t" if char == "\t" else " " * _columns(char) for char in before)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
