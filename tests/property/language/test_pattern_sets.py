"""A set of many patterns finds exactly what each pattern finds by itself."""

from collections import Counter
from unittest.mock import patch

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.patterns.compiled_pattern import _options, beginnings, compile_pattern, guard_of, leading
from engine.patterns.fact_patterns import FactPatterns
from engine.patterns.lines import LONG_BYTES_MIN, KeptLines
from engine.patterns.syntax.cost import longest
from engine.patterns.syntax.reader import read
from engine.patterns.syntax.tree import Text
from tests.worlds.patterns import patterns, texts, words

SMALL = Limits(pattern_text_chars_max=15, pattern_work_max=60)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), patterns),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("find"), texts),
    ),
    max_size=40,
)


edges = st.sampled_from(
    ["^foo", "Bar$", "^kiss$", "foo\\nBar", "(?s)foo.Bar", r"foo\sBar", r"foo[^k]Bar", r"\bfoo", r"Bar\b",
     "(?m)^foo", "(?m)foo$", "^foo|kiss", "foo|kiss$", r"\Afoo", r"foo\z", "(?i)^FOO", "foo"]
)  # fmt: skip
"""Patterns that depend on the end of a line, and patterns that do not."""


def singly(counts: Counter[str], text: str, limits: Limits) -> list[str]:
    return sorted(pattern for pattern in counts if compile_pattern(pattern, limits).found_in(text))


@pytest.mark.parametrize("limits", [DEFAULT_LIMITS, SMALL], ids=["default", "small"])
@given(steps=steps, text=texts)
def test_sets_find_what_each_pattern_finds_by_itself(steps, text, limits):
    sets, counts = FactPatterns(limits), Counter[str]()
    for step in [*steps, ("find", text)]:
        match step:
            case "add", str() as pattern:
                sets.add(pattern)
                counts[pattern] += 1
            case "remove", int() as number if counts:
                pattern = list(counts)[number % len(counts)]
                sets.remove(pattern)
                counts = counts - Counter([pattern])
            case "find", str() as tried:
                assert sorted(sets.found_among(counts, tried)) == singly(counts, tried, limits)
        assert len(sets) == len(counts)


@given(st.lists(patterns, min_size=1, max_size=20, unique=True), st.lists(texts, min_size=1, max_size=5))
def test_many_patterns_together_change_no_verdict(together, tried):
    sets = FactPatterns(DEFAULT_LIMITS)
    for pattern in together:
        sets.add(pattern)
    for text in tried:
        assert sorted(sets.found_among(together, text)) == singly(Counter(together), text, DEFAULT_LIMITS)


lines = st.lists(st.one_of(texts, st.just(""), st.just("-" * LONG_BYTES_MIN)), min_size=1, max_size=5)


@given(
    st.lists(st.one_of(patterns, edges), min_size=1, max_size=20, unique=True),
    st.lists(lines, min_size=1, max_size=5),
)
def test_long_texts_are_searched_line_by_line_with_the_same_result(together, tried):
    sets = FactPatterns(DEFAULT_LIMITS)
    for pattern in together:
        sets.add(pattern)
    for text in ["\n".join([*lines, "-" * LONG_BYTES_MIN, *rest]) for lines in tried for rest in tried]:
        assert sorted(sets.found_among(together, text)) == singly(Counter(together), text, DEFAULT_LIMITS)
        # What they are certain of is also the same: bounds on the work of an event follow from it.
        alone = FactPatterns(DEFAULT_LIMITS)
        for pattern in together:
            alone.add(pattern)
        with patch.object(KeptLines, "found", return_value=None):
            expected = alone.bytes_of(text)
        assert sets.bytes_of(text) == expected


@given(patterns, texts)
def test_a_pattern_is_found_where_re2_finds_it(pattern, text):
    try:
        match = re2.compile(pattern, _options(1 << 20)).search(text)
    except UnicodeEncodeError:
        match = None
    assert compile_pattern(pattern, DEFAULT_LIMITS).found_in(text) is (match is not None)


@given(patterns, texts)
def test_every_match_begins_with_what_is_said_to_lead_it_and_is_no_longer_than_said(pattern, text):
    tree = read(pattern)
    try:
        match = re2.compile(pattern, _options(1 << 20)).search(text)
    except UnicodeEncodeError:
        match = None
    if match is None or tree is None:
        return
    leaders = leading(tree)
    if leaders is not None:
        written = "|".join(
            f"(?i:{re2.escape(one.text)})" if one.fold else re2.escape(one.text) for one in leaders
        )
        assert re2.match(written, text[match.start() :])
    assert longest(tree) is None or match.end() - match.start() <= longest(tree)


@given(words, st.booleans(), st.text(alphabet="absSkKfoOBr", max_size=20))
def test_no_place_where_a_literal_begins_is_missed(text, fold, searched):
    literal = f"(?i:{re2.escape(text)})" if fold else re2.escape(text)
    places = [at for at in range(len(searched)) if re2.match(literal, searched[at:])]
    assert beginnings(Text(text, fold), searched) >= len(places)


@given(patterns, texts)
def test_what_guards_a_pattern_is_found_wherever_the_pattern_is(pattern, text):
    guard = guard_of(read(pattern))
    if guard is not None and compile_pattern(pattern, DEFAULT_LIMITS).found_in(text):
        assert compile_pattern(guard, DEFAULT_LIMITS).found_in(text)
