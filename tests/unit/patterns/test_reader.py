"""The tree of each piece of syntax, and which syntax has none."""

import re

import pytest
import re2

from engine.patterns.compiled_pattern import PatternError
from engine.patterns.named_groups import NamedGroups
from engine.patterns.syntax.characters import POINT_MAX, complement, folded, other_case
from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Assertion, Choice, Class, Opaque, Repeat, Sequence, Text, Tree

A, B = Text("a", fold=False), Text("b", fold=False)
DIGITS = Class(((48, 57),))


def times(least: int, most: int | None) -> Tree:
    return Repeat(A, least, most)


@pytest.mark.parametrize(
    ("pattern", "tree"),
    [
        ("", Sequence(())),
        ("ab", Text("ab", fold=False)),
        (r"a\.\x62\x{63}\n", Text("a.bc\n", fold=False)),
        ("a(?i)b", Sequence((A, Text("b", fold=True)))),
        ("[0-9]ab(?:b)", Sequence((DIGITS, Text("abb", fold=False)))),
        ("a|b", Choice((A, B))),
        ("(a)|b|", Choice((A, B, Sequence(())))),
        ("(?P<name>a)", A),
        ("(?<name>a)", A),
        ("(?i-ms:a)", Text("a", fold=True)),
        ("(?U)a", A),
        ("(?i:a)b", Sequence((Text("a", fold=True), B))),
        ("a*", times(0, None)),
        ("a+?", times(1, None)),
        ("a??", times(0, 1)),
        ("a{0}", times(0, 0)),
        ("a{7}", times(7, 7)),
        ("a{0,}", times(0, None)),
        ("a{2,1000}", times(2, 1000)),
        ("a{2}?b", Sequence((times(2, 2), B))),
        ("a{02}", Text("a{02}", fold=False)),
        ("a{2,03}", Text("a{2,03}", fold=False)),
        ("a{,2}", Text("a{,2}", fold=False)),
        ("a{2", Text("a{2", fold=False)),
        ("a{2,3,4}", Text("a{2,3,4}", fold=False)),
        ("a{10000000000}", Text("a{10000000000}", fold=False)),
        ("a{x}", Text("a{x}", fold=False)),
        (r"\pL\p{Greek}a", Sequence((Opaque(), Opaque(), A))),
        (r"[a\pL]b", Sequence((Opaque(), B))),
        (r"[\p{Greek}a]b", Sequence((Opaque(), B))),
        ("[[:digit:]a]", Class(((48, 57), (97, 97)))),
        ("[[:ascii:]]", Class(((0, 127),))),
        ("[[:cntrl:]]", Class(((0, 31), (127, 127)))),
        (".", Class(((0, 9), (11, POINT_MAX)))),
        ("(?s).", Class(((0, POINT_MAX),))),
        (r"[\da]", Class(((48, 57), (97, 97)))),
        (r"^\ba", Sequence((Assertion(True, word=False), Assertion(False, word=True), A))),
    ],
)
def test_syntax_that_is_known_has_its_tree(pattern: str, tree: Tree) -> None:
    assert read(pattern) == tree


@pytest.mark.parametrize("pattern", [r"\Qa\E", r"\C", r"\101", "(?x)a", "a)", "(a", "[a", "[[:none:]]", "\\"])
def test_syntax_that_is_not_known_has_none(pattern: str) -> None:
    assert read(pattern) is None


def test_groups_in_one_another_have_a_bound_and_those_side_by_side_none() -> None:
    beside = "(a)" * 60
    assert read(beside + "(" * 49 + "b" + ")" * 49) == Text("a" * 60 + "b", fold=False)
    assert read(beside + "(" * 50 + "b" + ")" * 50) is None


def test_classes_end_where_their_characters_end() -> None:
    assert complement(((0, POINT_MAX - 1),)) == ((POINT_MAX, POINT_MAX),)
    assert other_case(((48, 57), (64, 64), (91, 96), (123, 127))) == []
    assert folded(((0x80, 0x80),)) == ((0x80, 0x80), (0x80, POINT_MAX))


PATTERNS = (
    r"^(?P<time>.{15}) .* password for (?P<user>\S+)",
    r"^(?P<time>.{15}) \S+ sshd.* password for (invalid user )?(?P<user>\S+) from (?P<ip>\S+)",
    r"(?P<b>b)?(?P<a>a)|(?P<c>c)",
    r"(?i)(?P<word>[a-z]+)(?: (?P<number>\d+))?$",
    r"(?P<accented>[à-ü]+)",
)
LINES = (
    "Dec 10 06:55:46 host sshd[1]: Failed password for invalid user ada from 192.0.2.7 port 22",
    "Dec 10 06:55:46 host sshd[1]: Failed password for eve from 192.0.2.8",
    "a",
    "ba",
    "xc",
    "Ada 17",
    "Ada",
    "",
    "é àü \x00 \ufffd",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_groups_are_those_of_python(pattern: str) -> None:
    mine, theirs = NamedGroups(pattern), re.compile(pattern)
    assert mine.names == list(theirs.groupindex)
    for line in LINES:
        found = theirs.search(line)
        assert mine.found_in(line) == (found and [found[name] or "" for name in mine.names])


def test_the_groups_may_be_numbered_otherwise_than_named() -> None:
    assert NamedGroups("(x)(?P<b>y)(?P<a>z)").found_in("xyz") == ["y", "z"]
    assert NamedGroups("(?P<b>y)(?P<a>z)").names == ["b", "a"]


def test_half_a_character_is_replaced() -> None:
    assert NamedGroups("(?P<a>.*)").found_in("a\ud800b") == ["a?b"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", r"missing \): \("),
        ("(?P<a>(?=x))", r"invalid perl operator: \(\?="),
        (r"(?P<a>x)\1", r"invalid escape sequence: \\1"),
        (r"(?P<a>x)(?P=a)", r"invalid perl operator: \(\?P"),
        ("(?P<a>x)(?P<a>y)", "two groups are named a"),
        ("\ud800", "it is no Unicode text"),
    ],
)
def test_what_re2_has_not_is_refused_with_its_reason(pattern: str, said: str) -> None:
    with pytest.raises(PatternError, match=said):
        NamedGroups(pattern)


def test_a_hostile_line_takes_no_longer_than_another() -> None:
    # Python's own expressions would take more than the age of the universe.
    groups = NamedGroups("(?P<a>(a+)+)$")
    assert groups.found_in("a" * 100_000 + "!") is None
    assert groups.found_in("a" * 100_000) == ["a" * 100_000]


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
