"""The tree of each piece of syntax, and which syntax has none."""

import pytest

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
