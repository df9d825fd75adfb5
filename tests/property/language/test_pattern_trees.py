"""The tree of an expression matches what RE2 matches, so costs are decided on the right expression."""

import re2
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Assertion, Choice, Class, Opaque, Repeat, Sequence, Text, Tree
from tests.worlds.patterns import SCRAPS, patterns


def written(tree: Tree) -> str:
    """Return an expression for a tree. Where the tree does not know what matches, it matches anything."""
    match tree:
        case Text(text, fold):
            return f"(?{'i' if fold else ''}:{re2.escape(text)})"
        case Class(ranges):
            classes = "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in ranges if low <= high)
            return f"[{classes}]" if classes else r"[^\x00-\x{10FFFF}]"
        case Opaque():
            return "(?s:.)"
        case Assertion(text_start, _):
            return r"\A" if text_start else ""
        case Sequence(parts):
            return "".join(map(written, parts))
        case Choice(parts):
            return f"(?:{'|'.join(map(written, parts))})"
        case Repeat(part, least, most):
            return f"(?:{written(part)}){{{least},{'' if most is None else most}}}"


def is_exact(tree: Tree) -> bool:
    """Return whether the tree knows exactly what matches."""
    match tree:
        case Text() | Assertion(True, _):
            return True
        case Class(ranges):
            # A class whose case is ignored may match more characters beyond ASCII.
            return all(high < 0x80 for _, high in ranges)
        case Opaque() | Assertion():
            return False
        case Sequence(parts) | Choice(parts):
            return all(map(is_exact, parts))
        case Repeat(part):
            return is_exact(part)


@st.composite
def matches(draw: st.DrawFn, tree: Tree) -> str:
    """Draw a text that the tree matches, apart from its assertions."""
    match tree:
        case Text(text, fold):
            return draw(st.sampled_from([text, text.swapcase()])) if fold else text
        case Class(ranges) if ranges:
            low, high = draw(st.sampled_from(ranges))
            return chr(draw(st.sampled_from([low, high]))) if low <= high else ""
        case Class() | Assertion():
            return ""
        case Opaque():
            return draw(st.sampled_from(["k", "\u03b1", "5"]))
        case Sequence(parts):
            return "".join(draw(matches(part)) for part in parts)
        case Choice(parts):
            return draw(matches(draw(st.sampled_from(parts))))
        case Repeat(part, least, most):
            times = draw(st.integers(least, min(least + 2, least + 2 if most is None else most)))
            return "".join(draw(matches(part)) for _ in range(times))


@given(patterns, st.data())
def test_a_tree_matches_what_its_expression_matches(pattern: str, data: st.DataObject) -> None:
    tree = read(pattern)
    assume(tree is not None)
    assert tree is not None
    try:
        ours = re2.compile(written(tree))
    except re2.error:
        # A tree nests repetitions that RE2 does not accept once they are written like this.
        assume(False)
    theirs = re2.compile(pattern)
    for text in (
        data.draw(matches(tree), label="a match"),
        data.draw(st.lists(st.sampled_from(SCRAPS), max_size=6).map("".join), label="any text"),
        pattern,
    ):
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            continue
        assert ours.fullmatch(text) or not theirs.fullmatch(text), text
        if is_exact(tree):
            assert theirs.fullmatch(text) or not ours.fullmatch(text), text
