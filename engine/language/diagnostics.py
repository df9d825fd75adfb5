"""What is said to a caller whose input is refused: codes, places, carets, suggestions."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

UNREADABLE = 1300
INVALID = 1301
BAD_PATTERN = 1302
TOO_LARGE = 1303

LINE_CHARS_MAX = 160
"""A longer line is shown in part, around the place."""

QUOTED_CHARS_MAX = 60
"""More of the caller's own text is not repeated in a sentence."""

_CUT = "…"


class Entry(NamedTuple):
    """One entry of `errors` or `messages` in a reply: a code of at least 1000 and a sentence."""

    code: int
    message: str


class Refusal(Exception):
    """The caller's error: at least one entry, all of one kind, in the order in which they are reported.

    Whoever raises it has changed nothing.
    """

    def __init__(self, *entries: Entry) -> None:
        assert entries, "a refusal says why"
        super().__init__("\n".join(entry.message for entry in entries))
        self.entries = entries

    @property
    def code(self) -> int:
        """The code of the first entry, which settles the status of the reply."""
        return self.entries[0].code

    def __reduce__(self) -> tuple[type["Refusal"], tuple[Entry, ...]]:
        """Travel between processes by the entries alone."""
        return type(self), tuple(self.entries)


class ConditionError(Refusal):
    """A condition that is refused: 1300 unreadable, 1301 invalid, 1302 a bad pattern, 1303 too large."""


class Place(NamedTuple):
    """Where a character stands: line and column, both from 1, columns in characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class Source:
    """A text that somebody wrote, and what it takes to point into it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._line_starts = [0]
        start = text.find("\n") + 1
        while start:
            self._line_starts.append(start)
            start = text.find("\n", start) + 1

    def place(self, offset: int) -> Place:
        """Give the line and column of the character at `offset`, which may be just past the last one."""
        line = bisect_right(self._line_starts, offset)
        return Place(line, offset - self._line_starts[line - 1] + 1)

    def end(self) -> int:
        """Give the offset just past the last character that is no blank."""
        return len(self.text.rstrip(" \t\r\n"))

    def pointing(self, offset: int, sentence: str) -> str:
        """Give the sentence after its place, then the line of the text, and a caret under the place."""
        place = self.place(offset)
        start = self._line_starts[place.line - 1]
        stop = self.text.find("\n", start)
        line = self.text[start : stop if stop >= 0 else len(self.text)].rstrip("\r")
        shown, before = _around(line, place.column - 1)
        return f"{place}: {sentence}\n{shown}\n{_padding(shown[:before])}^"

    def refusal(self, offset: int, sentence: str) -> ConditionError:
        """Give the error of a text that cannot be read any further than `offset`."""
        return ConditionError(Entry(UNREADABLE, self.pointing(offset, sentence)))


def quoted(text: str) -> str:
    """Give the caller's own text as it stands in a sentence: in backquotes, cut short, fit to print."""
    if len(text) > QUOTED_CHARS_MAX:
        text = text[: QUOTED_CHARS_MAX - 1] + _CUT
    return f"`{_printable(text)}`"


def seen(text: str) -> str:
    """Give what was met in a text: quoted, or by its number where it is a single character that hides."""
    if len(text) == 1 and (text.isspace() or _unfit(text)):
        return f"the character U+{ord(text):04X}"
    return quoted(text)


def listed(phrases: Sequence[str], last_joint: str = "or") -> str:
    """Give `a, b or c`."""
    *most, last = phrases
    return f"{', '.join(most)} {last_joint} {last}" if most else last


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Give the known word that `word` was probably meant to be, or None where there is no near one."""
    near = [(distance(word, other), other) for other in known]
    return min((near_one for near_one in near if near_one[0] <= slips_max(word)), default=(0, None))[1]


def slips_max(word: str) -> int:
    """Give how many slips of the keyboard are likely in a word of this length."""
    short = 3
    return 1 if len(word) <= short else 2


def distance(word: str, other: str) -> int:
    """Give the number of slips between two words: a letter left out, put in, taken for another, or swapped.

    Letter case does not count. This is Damerau's distance in its restricted form (no letter slips twice).
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


def _printable(text: str) -> str:
    """Replace what would move the cursor, hide itself, or not survive encoding: one character for one."""
    return "".join(" " if char == "\t" else "\ufffd" if _unfit(char) else char for char in text)


def _unfit(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _around(line: str, place: int) -> tuple[str, int]:
    """Give what is shown of a line, and the index of the place in that."""
    line = "".join("\t" if char == "\t" else _printable(char) for char in line)
    if len(line) <= LINE_CHARS_MAX:
        return line, place
    start = max(0, min(place - LINE_CHARS_MAX // 2, len(line) - LINE_CHARS_MAX))
    stop = start + LINE_CHARS_MAX
    head, tail = _CUT if start else "", _CUT if stop < len(line) else ""
    return f"{head}{line[start:stop]}{tail}", place - start + len(head)


def _padding(before: str) -> str:
    """Give blanks as wide as the text before a place, on a terminal."""
    return "".join("\t" if char == "\t" else " " * _columns(char) for char in before)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
