"""Which expressions can make RE2 build ever more states, and what they can cost."""

import pytest

from engine.language.limits import DEFAULT_LIMITS
from engine.patterns.automaton import counted
from engine.patterns.compiled_pattern import (
    PatternError,
    beginnings,
    compile_pattern,
    guard_of,
    leading,
    program_size,
)
from engine.patterns.syntax.characters import complement, merged
from engine.patterns.syntax.cost import is_brief, is_plain, longest, places
from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Text

HARMLESS = [
    "",
    "powershell",
    "[A-Za-z0-9+/]{200,}",
    r"-e(nc)?\s+[A-Za-z0-9+/=]{900,}",
    "key=[0-9a-f]{500}",
    "^C:\\\\Windows$",
    "foo|bar|(baz|qux)x",
    "|".join(f"word{n}" for n in range(300)),
    r"(?i)\\users\\[^\\]+\\appdata",
    r"-enc(odedcommand)?\s+[a-z0-9+/=]{20,}",
    r"\b(\w+@\w+\.com|foo)\b$",
    r"(?i)cmd(\.exe)?\s+/c\s+.*(del|rmdir|format)\b",
    r"https?://[^/\s]+/(wp-admin|xmlrpc\.php)",
    r"\d{1,3}(\.\d{1,3}){3}",
    "[0-9a-f]{64}",
    "[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}",
    "(?:[A-Za-z0-9+/]{4}){10,}",
    "(x+x+)+y",
    "(.*a){20}",
    ".*".join("abcdefghij"),
    "^[ab].{30}c",
    r"\pL+\s\pL+",
    "(foo|ba[rz])+qux",
    "xox[bp]-([0-9a-zA-Z]{10,48})",
    "(?s).{30}[ab].*x",
    r"a\pN.{3}b",
    "(a?){500}b",
    "[ab]*(?:[abc]{21}){6,}x",
    "k[A-Z]{30}x",
    "^[ab].{30}c|^d",
]
EXPLODING = [
    "[ab].{30}c",
    "[ab].{100}c",
    "(a|b)*a(a|b){30}",
    "foo.{0,50}bar",
    "((a|b){20}c?){10}d",
    "(?i)k.{30}s",
    r"(?:a|b)(?:(?:\b|.)?){20}x",
    r"\Qa.b\E",
    "(" * 60 + "a" + ")" * 60,
    "a[ab]{8}c",
    "AKIA[0-9A-Z]{16}",
    "(?i:k)[A-Z]{30}x",
    r"\pL.{30}c",
    "(?:[ab].{30}c){00}",
    "(?:[ab].{30}c){0,0000}",
    r"(?:\b){9}",
]


@pytest.mark.parametrize("pattern", HARMLESS)
def test_what_people_write_is_harmless_and_takes_texts_of_any_length(pattern):
    compiled = compile_pattern(pattern, DEFAULT_LIMITS)
    assert not compiled.explodes
    assert compiled.text_bytes_max > 4 * DEFAULT_LIMITS.pattern_text_chars_max
    assert not compiled.too_long("é" * DEFAULT_LIMITS.pattern_text_chars_max)


@pytest.mark.parametrize("pattern", EXPLODING)
def test_what_can_have_ever_more_states_is_known(pattern):
    tree = read(pattern)
    assert tree is None or counted(tree).explodes


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("abc", 3),
        ("a{7}", 7),
        ("(ab|c){3}", 9),
        ("a*b+", 3),
        ("a{2,5}", 8),
        ("(a?){9}", 18),
        ("^$", 0),
        ("a{1000}", 1000),
        (r"\pL{4}.", 5),
        ("((a{1000}){999}){9}", 1_000_000),
        ("(a{1000}){1000}b", 1_000_000),
    ],
)
def test_places_are_the_characters_written_out_and_the_copies_that_may_be_left_out(pattern, count):
    assert places(read(pattern)) == count


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        ("abc", True),
        ("", True),
        (r"(?i)^ab\.c$", True),
        ("a|b", False),
        ("a?", False),
        ("[ab]", False),
        (r"a\b", False),
    ],
)
def test_one_literal_is_plain(pattern, plain):
    assert is_plain(read(pattern)) is plain


@pytest.mark.parametrize(
    ("pattern", "guard"),
    [
        ("powershell", "powershell"),
        ("(?i)powershell", "(?i:powershell)"),
        ("[ab]", None),
        ("ab", None),
        ("foo?bar", "bar"),
        (r"foo\.exe", r"foo\.exe"),
        ("foo*", None),
        ("(?i:fo)(long)", "long"),
        ("(?:(?i)fo)er", None),
        ("foox+bar!!", r"bar\!\!"),
        ("(foo|bar)x*", "foo|bar"),
        ("(foo|b)x*", None),
        ("(foo)?bars", "bars"),
        ("(foo){0,3}", None),
        ("(foo){2}", "foo"),
        ("fo(?i)o(?-i)bar", "bar"),
        ("foo^bar", "foo"),
        ("^foo|bar$", "foo|bar"),
        ("x{3}long", "long"),
        (r"\x66oo\x{6f}x?", "fooo"),
        (r"\Qfoo\E", None),
        ("fo\u017f", "fo\u017f"),
        ("(?:abc(?i)def|ghi)j", "abc|(?i:ghi)"),
        ("(?:foo)+x", "foo"),
        ("(?:foo|a longer one)x(?:four|fore)", "four|fore"),
        ("x" * 40, "x" * 32),
        (
            "|".join(f"word{number}" for number in range(16)),
            "|".join(f"word{number}" for number in range(16)),
        ),
        ("|".join(f"word{number}" for number in range(17)), None),
    ],
)
def test_guards_are_the_literals_that_no_match_can_do_without(pattern, guard):
    assert guard_of(read(pattern)) == guard


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("foo.{0,9}x", ["foo"]),
        ("(?i)(foo|bar|(baz|qux)y).x", ["foo", "bar", "baz", "qux"]),
        (r"\bfoo^bar[xy]", ["foo"]),
        ("fo.{0,9}longer", None),
        ("(foo|b)x", None),
        ("(foo)?bar", None),
        ("(?:foob|bar)+x", ["foob", "bar"]),
        ("fo(?i)longer", None),
        (r"fo\x{d800}longer", None),
        (r"\Qfoo\E", None),
    ],
)
def test_what_matches_begin_with_is_known(pattern, texts):
    guards = leading(read(pattern))
    assert (guards and [literal.text for literal in guards]) == texts


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("abc", 3),
        ("a|bcd", 3),
        (r"^a{2,5}\b.?$", 6),
        ("a*", None),
        ("(a|b+)c", None),
        ("((a{1000}){1000}){9}", None),
        ("(a{1000}){1000}", 1_000_000),
        ("(a{1000}){1001}", None),
        ("(?:a|bcd){4}", 12),
        ("(?:a{1000}){1000}|b", 1_000_000),
    ],
)
def test_the_longest_match_is_known(pattern, length):
    assert longest(read(pattern)) == length


def test_beginnings_are_counted_and_those_that_may_overlap_are_not_missed():
    assert beginnings(Text("key", fold=False), "key KEY keykey") == 3
    assert beginnings(Text("kEy", fold=True), "key KEY keykey") == 4
    assert beginnings(Text("aba", fold=False), "ababab") >= 2
    assert beginnings(Text("aAa", fold=True), "A" * 30) >= 28
    assert beginnings(Text("aa", fold=False), "aaa") >= 2
    assert beginnings(Text("\u017fec", fold=True), "SEC sec") == 2
    assert beginnings(Text("\u212aey", fold=True), "KEY key") == 2
    assert beginnings(Text("secret", fold=True), "public") == 0


def test_what_is_not_known_has_no_tree_and_may_explode():
    for pattern in (r"\Qa|b\E", r"\C", r"\101", "(" * 51 + "a" + ")" * 51):
        assert read(pattern) is None
        compiled = compile_pattern(pattern, DEFAULT_LIMITS)
        assert compiled.explodes
        assert compiled.work_per_byte == max(1, program_size(pattern) // 10)


def test_ranges_are_merged_and_complemented():
    assert merged(((5, 9), (1, 3), (4, 4), (7, 20))) == ((1, 20),)
    assert complement(((0, 4), (6, 0x10FFFF))) == ((5, 5),)
    assert complement(()) == ((0, 0x10FFFF),)


def test_an_exploding_pattern_takes_texts_up_to_its_work_exactly():
    for pattern in EXPLODING:
        try:
            compiled = compile_pattern(pattern, DEFAULT_LIMITS)
        except PatternError:
            continue
        assert compiled.work_per_byte > 0
        assert compiled.text_bytes_max == DEFAULT_LIMITS.pattern_work_max // compiled.work_per_byte
        text = "x" * min(compiled.text_bytes_max, compiled.text_chars_max)
        assert not compiled.too_long(text)
        assert compiled.too_long(text + "x")
        assert not compiled.found_in(text + "x")


@pytest.mark.parametrize(
    ("pattern", "brief"),
    [
        (r"host[0-9]+:443", True),
        (r"(?i)mod +-enc\b", True),
        (r"a[a-z]b", True),
        (r"colou?r|gr[ae]y", True),
        (r"a.b.c.d.e.f", False),
        (r"a.*b", False),
        (r"host[a-z]+x", False),
        (r"a\s{2,4}b", True),
        (r"a\s{2,40}b", False),
        (r"x\W+y", False),
        (r"\pLx", False),
        (r"(ab)+", False),
        (r"(?:a1)+x", False),
        (r"[0-9]a[a-z]b[A-Z]c.", True),
        (r"[0-9]a[a-z]b[A-Z]c.d.", False),
        (r"(?:[0-9]+-){1}x", False),
        (r"[0-9]+-[0-9]+-[0-9]+-[0-9]+x", True),
        (r"[0-9]+-[0-9]+-[0-9]+-[0-9]+-[0-9]+x", False),
        (r"-+=+-+=+-+=+x", True),
        (r"-+[0-9]a[0-9]b[0-9]c[0-9]d[0-9]x", False),
        (r"-{1,4}x", True),
        (r"-{1,5}x", False),
        (r"\s{1,4}x", True),
        (r"\s{1,5}x", False),
        *((rf"x[{letter}]+y", False) for letter in "AZaz\x80\U0010ffff"),
        *((rf"x[{letter}]+y", True) for letter in "@`{\x7f"),
        (r"x[\[]+y", True),
    ],
)
def test_what_ends_with_the_next_letter_is_brief(pattern: str, brief: bool) -> None:
    assert is_brief(read(pattern)) is brief
