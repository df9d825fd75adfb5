"""A word for texts gives a pattern, which matches as in RE2, and a pattern shows its word again."""

import re2
from hypothesis import given
from hypothesis import strategies as st

from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.sugar import SUGAR, pattern_of, sugar_of
from engine.patterns.compiled_pattern import CompiledPattern
from engine.patterns.syntax.reader import read
from engine.patterns.text_tests import folded_literal_of, literal_of

LETTERS = "abkKsSi\u212a\u017fßẞİ\u0131é\n.*?\\^$[](){}|+ -"
TEXTS = st.text(LETTERS, max_size=5)
WORDS = st.sampled_from([*SUGAR])


@given(WORDS, TEXTS)
def test_a_pattern_shows_the_word_that_gives_it(word: str, text: str) -> None:
    pattern = pattern_of(word, text)
    shown = sugar_of(pattern)
    assert shown is not None
    assert shown[0] == word
    assert pattern_of(*shown) == pattern
    if not SUGAR[word].has_wildcards:
        assert shown[1] == text


@given(WORDS, TEXTS, st.text(r"(?si)^$.*\-a", max_size=3))
def test_no_other_pattern_shows_a_word(word: str, text: str, added: str) -> None:
    other = pattern_of(word, text) + added
    shown = sugar_of(other)
    assert shown is None or pattern_of(*shown) == other


@given(WORDS, TEXTS, TEXTS, st.sampled_from([str, str.upper, str.lower, str.swapcase]), TEXTS)
def test_a_word_matches_what_re2_matches(word, text, before, change, after) -> None:
    pattern = pattern_of(word, text)
    for tried in (before + change(text) + after, change(text), change(text) + after, before + change(text)):
        matched = re2.search(pattern, tried) is not None
        literal = literal_of(pattern)
        assert literal is None or literal.test(lambda _: True)(tried) is matched
        assert CompiledPattern(pattern, DEFAULT_LIMITS).found_in(tried) is matched


def test_words_without_wildcards_need_no_expression() -> None:
    assert literal_of(pattern_of("startswith", "a.b")) == ("a.b", True, False)
    assert literal_of(pattern_of("endswith", "")) == ("", False, True)
    assert literal_of(pattern_of("like", "a*")) == ("a", True, False)
    assert literal_of(pattern_of("like", "*a*")) == ("a", False, False)
    assert literal_of(pattern_of("like", "a")) == ("a", True, True)
    for pattern in (
        "^a.*$",
        "(?m)^a",
        "(?m)a$",
        "(?s)(?m)a$",
        "(?s)a.b",
        "a|b",
        "a+",
        "(?i)a",
        "(?s:a)$",
        ".*a",
    ):
        assert literal_of(pattern) is None


def test_literals_without_letter_case_are_told_from_others() -> None:
    def folded(pattern: str) -> object:
        return folded_literal_of(pattern, read(pattern))

    assert folded("(?si)^A.*$") == ("a", True, False)
    assert all(folded(pattern) for pattern in ("(?i)A", "(?i)^A$", "(?i)"))
    others = ("a", "(?i)é", "(?i)a.b", "(?i)a(?-i)b", "(?im)^a", "x(?i)a")
    assert not any(map(folded, others))


def test_letter_case_is_that_of_single_characters() -> None:
    def matches(word: str, text: str, tried: str) -> bool:
        return CompiledPattern(pattern_of(word, text), DEFAULT_LIMITS).found_in(tried)

    assert matches("iequals", "k", "\u212a")
    assert matches("iequals", "\u212a", "K")
    assert matches("icontains", "s", "a\u017f")
    assert matches("iequals", "ß", "ẞ")
    assert not matches("iequals", "ß", "ss")
    assert not matches("iequals", "ss", "ß")
    assert not matches("iequals", "i", "İ")
    assert not matches("iequals", "i", "\u0131")
