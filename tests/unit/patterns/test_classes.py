"""Which characters a class takes is what RE2 takes, character by character."""

import pytest
import re2

from engine.patterns.syntax.characters import POINT_MAX
from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Assertion, Class, Tree

SEEN = [*range(0x300), 0x17F, 0x1E9E, 0x2028, 0x212A, 0xFFFF, 0x10000, POINT_MAX]
"""ASCII, what folds into it, and some others."""

NAMES = (
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
)  # fmt: skip
EXACT = [
    ".",
    "(?s).",
    r"\d", r"\D", r"\w", r"\W", r"\s", r"\S",
    "[a]", "[^a]", "[a-cx-z]", "[^a-cx-z]", "[]a]", "[^]a]", "[a-]", "[-a]", "[a^]",
    r"[\]\\]", r"[\d_]", r"[^\w\s]", r"[\D]", r"[\n\t\a\f\v\r]",
    r"[\x41-\x{43}]", r"[é-ü]",
    "(?i)[A]", "(?i)[z]", "(?i)[Z]",
    "(?i)[a]", "(?i)[Kk]", "(?i)[a-z]", "(?i)[^a-z]", "(?i)[S]", r"(?i)[\w]", "(?i)[@-Z]", "(?i)[_-z]",
    r"(?i)[^\W]", r"(?i)[^\W\d]", r"(?i)[\x7e-\x7f]", "(?i)[^[:^alpha:]]", "(?i)[^[:^digit:]]",
    *(f"[[:{name}:]]" for name in NAMES),
    *(f"[[:^{name}:]]" for name in NAMES),
]  # fmt: skip
WIDER = ["(?i)[é]", "(?i)[à-ü]", "(?i)[aé]", r"(?i)\W", r"(?i)[\W]", "(?i)[[:^lower:]]"]
"""Past ASCII the case of a letter is not looked up: a folded class may take more than RE2 does,
    never less."""


def taken(pattern: str) -> set[int]:
    tree = read(pattern)
    assert isinstance(tree, Class)
    return {point for point in SEEN if any(start <= point <= end for start, end in tree.ranges)}


def taken_by_re2(pattern: str) -> set[int]:
    compiled = re2.compile(pattern)
    return {point for point in SEEN if compiled.fullmatch(chr(point))}


@pytest.mark.parametrize("pattern", EXACT)
def test_a_class_takes_what_re2_takes(pattern: str) -> None:
    assert taken(pattern) == taken_by_re2(pattern)


@pytest.mark.parametrize("pattern", WIDER)
def test_a_folded_class_takes_all_that_re2_takes(pattern: str) -> None:
    ours, theirs = taken(pattern), taken_by_re2(pattern)
    assert ours >= theirs
    assert {point for point in ours - theirs if point < 0x80} == set()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^", Assertion(text_start=True, word=False)),
        (r"\A", Assertion(text_start=True, word=False)),
        ("(?m)^", Assertion(text_start=False, word=False)),
        ("$", Assertion(text_start=False, word=False)),
        (r"\z", Assertion(text_start=False, word=False)),
        (r"\b", Assertion(text_start=False, word=True)),
        (r"\B", Assertion(text_start=False, word=True)),
    ],
)
def test_an_assertion_says_whether_it_holds_at_the_start_alone(pattern: str, found: Tree) -> None:
    assert read(pattern) == found
