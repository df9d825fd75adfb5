"""What was found in a text of a fact is kept, so that the same text is not searched again."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import ascii_lowercase, digits

import pytest

from engine.language.limits import DEFAULT_LIMITS
from engine.patterns import fact_patterns
from engine.patterns.compiled_pattern import compile_pattern
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
    """Return an equal text that is another object, like the text of another event."""
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


BYTES_A_UNIT_MAX = 125
COUNT = 100
NUMBERS = "".join(f"{number:03}" for number in range(COUNT))


def drawn(letters: str, length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


SHAPES: dict[str, Callable[[int], tuple[str, str]]] = {
    "harmless": lambda number: (f"a.{{7}}{number:03}", drawn("ab", 3_000, number % 4) + NUMBERS),
    "exploding": lambda number: (f"a.{{9}}{number:03}", drawn("ab", 3_000, number % 4) + NUMBERS),
    "literals": lambda number: (drawn(ascii_lowercase + digits, 900, number),) * 2,
}
"""Expressions, each with a text for which RE2 builds its states."""


def bytes_a_unit(shape: str) -> float:
    """Return how much the process grows while texts are searched for a hundred expressions of a shape."""
    expressions, texts = zip(*map(SHAPES[shape], range(COUNT)), strict=True)
    together = FactPatterns(DEFAULT_LIMITS)
    for expression in expressions:
        together.add(expression)
    before = resident_bytes()
    for each in sorted(set(texts)):
        together.found_among(expressions, each)
    units = sum(compile_pattern(expression, DEFAULT_LIMITS).preparation for expression in expressions)
    return (resident_bytes() - before) / units


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


@pytest.mark.storm
@pytest.mark.parametrize("shape", SHAPES)
def test_the_states_of_expressions_take_what_the_documentation_says(shape: str) -> None:
    # In a process of its own, no memory is used again.
    command = [sys.executable, "-m", __spec__.name, shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # With far less, the texts would not have made RE2 build the states.
    assert BYTES_A_UNIT_MAX / 5 < float(done.stdout) < BYTES_A_UNIT_MAX


if __name__ == "__main__":
    print(bytes_a_unit(sys.argv[1]))
