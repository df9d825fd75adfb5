"""What was found in a text of a fact is kept, so that the same text is not searched again."""

import random

import pytest

from engine.patterns import fact_patterns
from engine.patterns.fact_patterns import KEPT_CHARS_MAX, KEPT_TEXTS_MAX, FactPatterns
from engine.patterns.limits import PatternLimits
from engine.patterns.sets import PatternSets

PATTERNS = ["a+b", "b.*c", "^x", "c$", "(?i)AbC", "[0-9]{2}"]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The texts that were searched."""
    found: list[bytes] = []
    candidates = PatternSets.candidates

    def noted(sets: PatternSets, text: bytes) -> object:
        found.append(text)
        return candidates(sets, text)

    monkeypatch.setattr(PatternSets, "candidates", noted)
    return found


def patterns(*wanted: str) -> FactPatterns:
    made = FactPatterns(PatternLimits())
    for pattern in wanted:
        made.add(pattern)
    made.compile_new()
    return made


def anew(text: str) -> str:
    """Give an equal text that is another object, as that of another event is."""
    return "".join([*text])


def test_a_text_that_comes_again_is_not_searched_again(searched: list[bytes]) -> None:
    tried = patterns(*PATTERNS)
    for text in ("aab and 17", "other", "aab and 17", "other"):
        expected = {"a+b", "[0-9]{2}"} if "17" in text else set()
        assert {*tried.found_among(PATTERNS, anew(text))} == expected
    assert searched == [b"aab and 17", b"other"]


def test_long_texts_are_not_kept_and_of_short_ones_so_many(searched: list[bytes]) -> None:
    tried = patterns(*PATTERNS)
    for text in ("c" * KEPT_CHARS_MAX, "c" * (KEPT_CHARS_MAX + 1)):
        for _ in range(3):
            assert tried.found_among(PATTERNS, anew(text)) == ["c$"]
    assert len(searched) == 1 + 3
    for number in range(KEPT_TEXTS_MAX + 1):
        tried.found_among(PATTERNS, f"n{number}")
    searched.clear()
    tried.found_among(PATTERNS, "c" * KEPT_CHARS_MAX)
    assert len(searched) == 1, "the oldest is gone"


def test_patterns_that_change_are_searched_for_anew(searched: list[bytes]) -> None:
    tried = patterns(*PATTERNS)
    assert {*tried.found_among([*PATTERNS, "d"], "abcd")} == {"a+b", "b.*c", "(?i)AbC"}
    tried.add("d")
    tried.compile_new()
    assert {*tried.found_among([*PATTERNS, "d"], anew("abcd"))} == {"a+b", "b.*c", "(?i)AbC", "d"}
    tried.remove("d")
    assert "d" not in tried.found_among([*PATTERNS, "d"], anew("abcd"))
    assert len(searched) == 3


def test_what_is_kept_agrees_with_what_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where patterns are not tried, or are tried singly before."""
    draw = random.Random(7)
    monkeypatch.setattr(fact_patterns, "KEPT_TEXTS_MAX", 3)
    tried, singly = patterns(*PATTERNS), {each: patterns(each) for each in PATTERNS}
    texts = ["ab", "abc", "xc", "17c", "ABC", ""]
    for _ in range(500):
        text = anew(draw.choice(texts))
        tried.untried = draw.random() < 0.2
        expected = [
            each for each in PATTERNS if not tried.untried and singly[each].compiled(each).found_in(text)
        ]
        for each in draw.sample(PATTERNS, 2):
            assert tried.found(each, tried.compiled(each), text) is (each in expected)
        assert {*tried.found_among(PATTERNS, text)} == {*expected}
        assert tried.bytes_of(text) >= 0
