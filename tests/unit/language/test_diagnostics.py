"""Places, carets and suggestions, apart from any grammar."""

import pickle

import pytest

from engine.language.diagnostics import (
    LINE_CHARS_MAX,
    ConditionError,
    Entry,
    Position,
    Refusal,
    Source,
    edit_distance,
    enumerated,
    found,
    nearest,
    quoted,
)


def test_lines_and_columns_count_from_one() -> None:
    source = Source("ab\n\ncd")
    assert [source.position(offset) for offset in range(7)] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (3, 1),
        (3, 2),
        (3, 3),
    ]
    assert str(Position(3, 2)) == "line 3, column 2"


@pytest.mark.parametrize(
    ("text", "offset", "shown", "caret"),
    [
        ("abc", 1, "abc", " ^"),
        ("abc", 3, "abc", "   ^"),
        ("", 0, "", "^"),
        ("a\nbcd\ne", 4, "bcd", "  ^"),
        ("\nab", 0, "", "^"),
        ("a\r\nbc\r\n", 1, "a", " ^"),
        ("\ta\tb", 3, "\ta\tb", "\t \t^"),
        ("東京 x", 3, "東京 x", "     ^"),
        ("e\u0301 x", 3, "e\u0301 x", "  ^"),
        ("a\x1b[31mb", 6, "a\ufffd[31mb", "      ^"),
        ("a\ud800b\u202ec", 4, "a\ufffdb\ufffdc", "    ^"),
    ],
)
def test_the_caret_stands_under_the_place(text: str, offset: int, shown: str, caret: str) -> None:
    assert Source(text).annotated(offset, "no").split("\n")[1:] == [shown, caret]


@pytest.mark.parametrize("offset", [0, 1, 79, 80, 81, 250, 419, 420, 499, 500])
def test_of_a_long_line_the_part_around_the_place_is_shown(offset: int) -> None:
    text = "".join(chr(ord("a") + index % 26) for index in range(500))
    _, shown, caret = Source(text).annotated(offset, "no").split("\n")
    assert len(shown) <= LINE_CHARS_MAX + 2
    assert shown[len(caret) - 1 :][:1].replace("…", "") == text[offset : offset + 1]
    assert shown.strip("…") in text


@pytest.mark.parametrize(
    ("offset", "start", "stop"),
    [(0, 0, 160), (80, 0, 160), (250, 170, 330), (420, 340, 500), (500, 340, 500)],
)
def test_what_is_left_out_of_a_long_line_is_marked(offset: int, start: int, stop: int) -> None:
    text = "".join(chr(ord("a") + index % 26) for index in range(500))
    shown = Source(text).annotated(offset, "no").split("\n")[1]
    assert shown == "…" * (start > 0) + text[start:stop] + "…" * (stop < 500)


@pytest.mark.parametrize(
    ("word", "other", "apart"),
    [
        ("within", "within", 0),
        ("WITHIN", "within", 0),
        ("wihtin", "within", 1),
        ("witin", "within", 1),
        ("wwithin", "within", 1),
        ("wirhin", "within", 1),
        ("whitin", "within", 2),
        ("wthn", "within", 2),
        ("ca", "abc", 3),
        ("a", "historically", 3),
        ("x", "left", 3),
        ("aaa", "a", 2),
        ("", "in", 2),
    ],
)
def test_the_distance_of_two_words_counts_typos(word: str, other: str, apart: int) -> None:
    assert edit_distance(word, other) == apart


def test_the_nearest_word_is_suggested_and_none_that_is_far() -> None:
    known = ("left", "right", "window_secs")
    assert nearest("rigth", known) == "right"
    assert nearest("window_sec", known) == "window_secs"
    assert nearest("middle", known) is None
    assert nearest("x", ()) is None
    assert nearest("i", ("in", "within")) == "in"
    assert nearest("", ("in",)) is None


def test_the_callers_text_is_quoted_short_and_fit_to_print() -> None:
    assert quoted("a\tb\n\x1b\ud800\u202e") == "`a b\ufffd\ufffd\ufffd\ufffd`"
    assert quoted("x" * 60) == f"`{'x' * 60}`"
    assert quoted("x" * 61) == f"`{'x' * 59}…`"
    assert found("\xa0") == "the character U+00A0"
    assert found("\x00") == "the character U+0000"
    assert found(";") == "`;`"


def test_alternatives_are_listed_as_in_speech() -> None:
    assert enumerated(["a"]) == "a"
    assert enumerated(["a", "b"]) == "a or b"
    assert enumerated(["a", "b", "c"], "and") == "a, b and c"


def test_an_error_travels_between_processes_with_all_it_says() -> None:
    error = ConditionError(Entry(1301, "one"), Entry(1302, "two"))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ConditionError
    assert again.entries == error.entries
    assert again.code == 1301
    assert str(again) == "one\ntwo"
    assert isinstance(again, Refusal)
