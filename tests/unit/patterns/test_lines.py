"""Long texts are searched line by line, and each line once."""

import pytest

from engine.patterns.fact_patterns import FactPatterns
from engine.patterns.limits import PatternLimits
from engine.patterns.lines import (
    KEPT_BYTES_MAX,
    KEPT_LINE_BYTES,
    LINE_BYTES_MIN,
    LINES_MAX,
    LONG_BYTES_MIN,
    KeptLines,
    Line,
    line_of,
)
from engine.patterns.syntax.reader import read

LONG = b"-" * LONG_BYTES_MIN


class Searched:
    """A search that notes the lines that it searches, and finds what they end in."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def __call__(self, line: bytes) -> list[tuple[str, Line]]:
        self.lines.append(line)
        return [(line[-1:].decode(), Line.ANY)] if line else []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("foo", Line.ANY),
        (r"(?i)foo[0-9.]{2,4}", Line.ANY),
        ("foo|ba+r", Line.ANY),
        ("^foo", Line.FIRST),
        (r"foo\z", Line.LAST),
        ("^foo$", Line.NONE),
        ("^foo|bar", Line.NONE),
        ("(?m)^foo", Line.NONE),
        ("foo(?m:$)", Line.NONE),
        (r"\bfoo", Line.NONE),
        (r"foo\sbar", Line.NONE),
        (r"foo[\n-\r]bar", Line.NONE),
        (r"foo[\t\x0b-\r]bar", Line.ANY),
        ("foo[^x]", Line.NONE),
        ("(?s)foo.", Line.NONE),
        ("foo.", Line.ANY),
        (r"foo\nbar", Line.NONE),
        (r"foo\Cbar", Line.NONE),
    ],
)
def test_an_expression_is_searched_for_in_lines_only_if_each_match_is_one_there(
    pattern: str, line: Line
) -> None:
    assert line_of(pattern, read(pattern)) is line


def test_a_line_that_comes_again_is_not_searched_again() -> None:
    kept, search = KeptLines[str](), Searched()
    assert kept.found(LONG + b"\nab\ncd", search) == ["-", "b", "d"]
    assert kept.found(b"cd\n" + LONG + b"\nef\nab", search) == ["d", "-", "f", "b"]
    assert search.lines == [LONG, b"ab", b"cd", b"ef"]
    kept.forget()
    kept.found(LONG + b"\nab", search)
    assert search.lines[4:] == [LONG, b"ab"]


@pytest.mark.parametrize(
    "text",
    [
        b"\n".join([b"-" * (LONG_BYTES_MIN // 4)] * 3),
        LONG,
        b"\n".join([LONG] * (LINES_MAX + 1)),
        b"\n".join([b"a" * (LINE_BYTES_MIN - 2)] * 100),
    ],
    ids=["short", "one line", "many lines", "short lines"],
)
def test_texts_without_lines_worth_it_are_searched_as_a_whole(text: bytes) -> None:
    assert KeptLines[str]().found(text, Searched()) is None


def test_a_text_is_searched_by_lines_from_the_least_length_on() -> None:
    assert KeptLines[str]().found(b"a\n" + LONG[2:], Searched()) == ["a", "-"]


def test_short_lines_are_kept_up_to_a_bound_too() -> None:
    kept, search = KeptLines[str](), Searched()
    lines_a_text = 100
    for number in range(4 * KEPT_BYTES_MAX // (KEPT_LINE_BYTES * lines_a_text)):
        kept.found(b"\n".join(b"%20d.%18d" % (number, line) for line in range(lines_a_text)), search)
    first = search.lines[:lines_a_text]
    kept.found(b"\n".join(first), search)
    assert search.lines[-lines_a_text:] == first


def test_what_is_to_be_forgotten_next_is_forgotten_with_the_rest() -> None:
    kept, search = KeptLines[str](), Searched()
    first = LONG + b"first"
    kept.found(first + b"\n", search)
    kept.found(b"-" * KEPT_BYTES_MAX + b"\n", search)
    kept.found(LONG + b"last\n", search)
    kept.forget()
    kept.found(first + b"\n", search)
    assert search.lines.count(first) == 2


def test_lines_are_kept_up_to_a_bound_and_those_that_come_again_stay() -> None:
    kept, search = KeptLines[str](), Searched()
    often = LONG + b"often"
    size = 20_000
    for number in range(5 * KEPT_BYTES_MAX // size):
        kept.found(often + b"\n" + b"%06d" % number * (size // 6), search)
    assert search.lines.count(often) == 1
    first = search.lines[1]
    kept.found(often + b"\n" + first, search)
    assert search.lines.count(first) == 2


@pytest.mark.parametrize(
    ("pattern", "beginnings", "ends"),
    [
        ("^foo bar", [True, False], [False, False]),
        ("foo bar$", [False, False], [True, False]),
        (r"foo bar\nabcdefghi.{0,9}-", [True, False], [False, False]),
    ],
    ids=["first line", "last line", "across lines"],
)
def test_a_pattern_of_an_end_is_found_at_that_end_only(
    pattern: str, beginnings: list[bool], ends: list[bool]
) -> None:
    many = FactPatterns(PatternLimits())
    for each in (pattern, *(f"other{number}" for number in range(5))):
        many.add(each)
    rest = "-" * LONG_BYTES_MIN
    for text, found in [
        (f"foo bar\nabcdefghi{rest}", beginnings[0]),
        (f"x\nfoo bar\n\n{rest}", beginnings[1]),
        (f"{rest}\nfoo bar", ends[0]),
        (f"{rest}\nfoo bar\n", ends[1]),
    ]:
        assert many.found_among([pattern], text) == ([pattern] if found else [])
