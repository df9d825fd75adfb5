"""Generators of regular expressions, and of texts that match them or nearly do."""

from hypothesis import strategies as st

from engine.language.limits import DEFAULT_LIMITS
from engine.patterns.compiled_pattern import PatternError, judged_pattern

LITERALS = (
    "a",
    "b",
    "ab",
    "abc",
    "foo",
    "fool",
    "Bar",
    "kiss",
    "\u212a",
    "\u017f",
    "é",
    "ß",
    "İ",
    "中",
    " ",
    "{",
    "a{,2}",
)
ESCAPES = (r"\.", r"\\", r"\n", r"\x41", r"\x{e9}", r"\101", r"\Qa.c\E", r"\-")
CLASSES = (".", "[ab]", "[^a]", "[a-f0-9]", "[]a]", "[^]]", "[[:alpha:]k]", r"[\d\]x-]", r"\d", r"\S", r"\w")
UNICODE = (r"\pL", r"\PN", r"\p{Greek}", r"[\p{Lu}é]", r"\C", "[\u0436-\u044f]")
PLACES = ("^", "$", r"\A", r"\z", r"\b", r"\B", "")
REPEATS = (
    "*", "+", "?", "*?", "+?", "??", "{0}", "{1}", "{2}", "{0,3}", "{2,}", "{1,4}?", "{0,}",
    "{00}", "{02}", "{0,02}", "{,2}", "{2", "{1,2,3}", "{1;2}", "{10000000000}",
)  # fmt: skip
GROUPS = (
    "(%s)",
    "(?:%s)",
    "(?P<n>%s)",
    "(?<m>%s)",
    "(?i:%s)",
    "(?-i:%s)",
    "(?s:%s)",
    "(?m:%s)",
    "(?i-s:%s)",
    "(?U:%s)",
)
FLAGS = ("(?i)", "(?s)", "(?m)", "(?is)", "(?-i)", "(?U)")

SCRAPS = (
    *LITERALS,
    "A",
    "ABC",
    "FOO",
    "bAR",
    "KISS",
    "ki\u017fs",
    "É",
    "i",
    "ss",
    "\n",
    "\x00",
    "a.c",
    "5",
    "жα",
    "]",
)


def _is_taken(pattern: str) -> bool:
    try:
        judged_pattern(pattern, DEFAULT_LIMITS)
    except PatternError:
        return False
    return True


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.builds(lambda shape, one: shape % one, st.sampled_from(GROUPS), inner),
        st.builds(lambda one, times: f"(?:{one}){times}", inner, st.sampled_from(REPEATS)),
        st.builds(lambda one, flags, two: f"{one}{flags}{two}", inner, st.sampled_from(FLAGS), inner),
    )


words = st.lists(st.sampled_from(LITERALS), min_size=1, max_size=4).map("".join)
atoms = st.sampled_from((*LITERALS, *ESCAPES, *CLASSES, *UNICODE, *PLACES))
patterns = st.one_of(words, st.recursive(st.one_of(words, atoms), _larger, max_leaves=8)).filter(_is_taken)

texts = st.one_of(
    st.lists(st.sampled_from(SCRAPS), max_size=12).map("".join),
    st.text(alphabet="abckABCK \né\u212a\ud800", max_size=12),
)
