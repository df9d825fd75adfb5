"""The bound on what the exploding patterns of one event may cost together."""

import itertools
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.facts.pattern_work import PatternWork
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.patterns.compiled_pattern import compile_pattern
from engine.patterns.text_tests import literal_of

HOSTILE = "[ab].{30}c"
WORK = compile_pattern(HOSTILE, DEFAULT_LIMITS).work_per_byte
GUARDED = "secret.{0,40}[a-z]{9,}x"


GUARDED_WORK = compile_pattern(GUARDED, DEFAULT_LIMITS).work_per_byte


def work_of(patterns: list[tuple[str, str]], limits: Limits = DEFAULT_LIMITS) -> PatternWork:
    work = PatternWork(limits)
    for fact, pattern in patterns:
        work.add(fact, pattern)
    return work


def cut(work: PatternWork, **values: object) -> set[str]:
    return set(work.begin(values, {}))


def test_work_up_to_the_bound_is_done_and_one_byte_more_is_not():
    limits = Limits(pattern_event_work_max=10 * WORK)
    work = work_of([("t", HOSTILE)], limits)
    found_in = work.finder("t", HOSTILE)
    for text, too_much in (("x" * 10, False), ("x" * 11, True), ("é" * 5, False), ("é" * 5 + "x", True)):
        assert cut(work, t=text) == ({"t"} if too_much else set())
    work = work_of([("t", "[ab].{8}c|x[ab]{9}")], Limits(pattern_event_work_max=200))
    found_in = work.finder("t", "[ab].{8}c|x[ab]{9}")
    for text, found in (("a12345678c", True), ("a12345678c" * 2, False), ("a12345678c", True)):
        assert cut(work, t=text) == (set() if found else {"t"})
        assert found_in(text) is found


def test_harmless_patterns_are_never_cut():
    harmless = [rf"(?i)\\users\\[^\\]+\\app{number}" for number in range(300)]
    harmless += [rf"-enc{number}(odedcommand)?\s+[a-z0-9+/=]{{20,}}" for number in range(300)]
    work = work_of([("t", pattern) for pattern in harmless], Limits(pattern_event_work_max=1))
    text = r"C:\users\ada\app7 -enc9 " + "0a" * 4_000
    assert cut(work, t=text) == set()
    found = [pattern for pattern in harmless if work.finder("t", pattern)(text)]
    assert found == [r"(?i)\\users\\[^\\]+\\app7", r"-enc9(odedcommand)?\s+[a-z0-9+/=]{20,}"]


def test_exploding_patterns_are_work_only_behind_what_they_begin_with():
    rules = [
        rf"(?i)(?:api|key).{{0,{number}}}['\"][0-9a-z]{{32,{number + 20}}}['\"]" for number in range(15, 45)
    ]
    work = work_of([("t", pattern) for pattern in rules])
    text = "the Api key is 'x', the KEY7 is '" + "0a" * 16 + "'" + " word" * 900
    assert cut(work, t=text) == set()
    assert sum(work.finder("t", pattern)(text) for pattern in rules) == 30
    assert cut(work, t=text + "key" * 100) == {"t"}
    assert cut(work, t="secret" * 100) == set()


def test_facts_of_less_work_come_first_and_those_alike_by_name():
    limits = Limits(pattern_event_work_max=30 * WORK)
    for order in itertools.permutations(["a", "b", "c"]):
        work = work_of([(fact, HOSTILE) for fact in order], limits)
        assert cut(work, a="x" * 10, b="x" * 10, c="x" * 10) == set()
        assert cut(work, a="x" * 11, b="x" * 11, c="x" * 10) == {"b"}
        assert cut(work, a="x" * 31, b="x" * 12, c="x" * 11) == {"a"}
        assert cut(work, a="x" * 31, b="x" * 31, c=None) == {"a", "b"}
        assert cut(work, a=7, b=["x" * 99], c="x" * 30) == set()


def test_texts_on_which_a_pattern_is_not_tried_anyway_are_no_work():
    limits = Limits(pattern_event_work_max=20 * WORK, pattern_work_max=15 * WORK)
    work = work_of([("a", HOSTILE), ("b", HOSTILE)], limits)
    assert cut(work, a="x" * 16, b="x" * 15) == set()
    assert cut(work, a="x" * 15, b="x" * 15) == {"b"}
    assert cut(work, a="x\ud800" * 15, b="x" * 15) == set()


def test_a_pattern_is_tried_once_on_a_text_however_many_ask(monkeypatch):
    work = work_of([("t", HOSTILE)])
    tried: list[str] = []
    compiled = compile_pattern(HOSTILE, DEFAULT_LIMITS)
    search = compiled.found_in
    monkeypatch.setattr(type(compiled), "found_in", lambda _, text: tried.append(text) or search(text))
    text, other = "a" + "x" * 30 + "c", "a" + "x" * 30 + "d"
    work.begin({"t": text}, {})
    assert [work.finder("t", HOSTILE)(text) for _ in range(3)] == [True] * 3
    assert [work.finder("t", HOSTILE)(other) for _ in range(3)] == [False] * 3
    assert tried == [text, other]


def test_a_text_is_gone_through_so_often_and_no_more():
    limits = Limits(pattern_event_bytes_max=100)
    work = work_of([("t", "[a-m][n-z]"), ("t", "[a-m]x"), ("u", "[n-z][a-m]")], limits)
    assert cut(work, t="x" * 40, u="y" * 20) == set()
    assert cut(work, t="x" * 40, u="y" * 21) == {"t"}
    assert work.is_untried("t")
    assert cut(work, t="x" * 50, u="y" * 1) == {"t"}
    assert cut(work, t="é" * 26) == {"t"}
    assert cut(work, t="é" * 25) == set()
    assert not work.is_untried("t")


def test_what_is_untried_matches_nothing_until_the_next_event():
    limits = Limits(pattern_event_bytes_max=100)
    work = work_of([("t", "x[a-m]"), ("t", "[ab]c"), ("u", "x")], limits)
    of_t, of_u = work.finder("t", "x[a-m]"), work.finder("u", "x")
    long, short = "xa" * 30, "xa" * 20
    for text, is_tried in ((short, True), (long, False), (short, True)):
        work.begin({"t": text, "u": "x"}, {})
        assert of_t(text) is is_tried
        assert of_u("x")
    work.begin({"t": long}, {})
    work.remove("t", "[ab]c")
    assert of_t(long)


def test_a_pattern_counts_only_where_its_literals_are_and_a_literal_never():
    limits = Limits(pattern_event_bytes_max=1_000)
    work = work_of([("t", f"word{number}.*[a-m]") for number in range(200)], limits)
    for number in range(200):
        work.add("t", f"text{number:03}")
    assert cut(work, t="word007 and text123" + " " * 21) == set()
    assert cut(work, t="word007 and text123" + " " * 21 + "word123" * 9) == {"t"}
    assert cut(work, t="text007text123" * 5) == set()


def test_literals_count_by_their_bytes():
    limits = Limits(pattern_event_bytes_max=10_000)
    work = work_of([("t", f"{number:05}" + "x" * 95) for number in range(500)], limits)
    assert cut(work, t=" " * 71) == set()
    assert cut(work, t=" " * 72) == {"t"}


def test_a_pattern_that_can_not_be_there_is_not_tried_on_a_long_text(monkeypatch):
    known = [f"word{number}.*[a-m]" for number in range(200)]
    work = work_of([("t", pattern) for pattern in known], Limits(pattern_event_bytes_max=10_000))
    tried: list[str] = []
    compiled = compile_pattern(known[0], DEFAULT_LIMITS)
    real = type(compiled).found_in
    monkeypatch.setattr(type(compiled), "found_in", lambda self, text: tried.append(text) or real(self, text))
    text = "word7 word70 b" * 40
    assert cut(work, t=text) == set()
    found = [pattern for pattern in known for _ in range(3) if work.finder("t", pattern)(text)]
    assert sorted(set(found)) == ["word7.*[a-m]", "word70.*[a-m]"]
    assert len(tried) == 2


def test_a_text_is_searched_for_all_patterns_only_if_they_might_be_too_much(searches):
    # Each pattern counts four bytes a character until the text has been searched.
    work = work_of([("t", "[a-m]x"), ("t", "[n-z]x")], Limits(pattern_event_bytes_max=80))
    work.add("u", HOSTILE)
    assert cut(work, t="é" * 10) == set()
    assert searches == []
    assert cut(work, t="é" * 11) == set()
    assert searches == ["é".encode() * 11]


def test_a_text_on_which_nothing_is_tried_takes_no_work_from_the_others():
    t, u = "x" * 30, "secret" + "y" * 9
    work_max = GUARDED_WORK * len(u)
    assert WORK * len(t) < work_max
    limits = Limits(pattern_event_bytes_max=100, pattern_event_work_max=work_max)
    work = work_of(
        [("t", "[a-m]x"), ("t", "[n-z]x"), ("t", "x[a-m]"), ("t", HOSTILE), ("u", GUARDED)], limits
    )
    assert cut(work, t=t, u=u) == {"t"}
    assert work.is_untried("t")
    assert not work.is_untried("u")


@pytest.mark.parametrize(("count", "bounded"), [(3, False), (4, True)])
def test_an_event_is_bounded_if_all_patterns_might_be_tried_on_the_longest_texts(count, bounded):
    # Four bytes a character, as often as there are patterns.
    limits = Limits(pattern_text_chars_max=10, pattern_event_bytes_max=3 * 4 * 10)
    work = work_of([(f"t{number}", "[a-m]x") for number in range(count)], limits)
    assert work.bounded is bounded


def test_an_event_is_bounded_as_long_as_a_pattern_explodes():
    work = work_of([("t", "[a-m]x")])
    for _ in range(2):
        work.add("t", HOSTILE)
        assert work.bounded
        work.remove("t", HOSTILE)
        assert not work.bounded


def test_nothing_is_kept_of_a_fact_without_patterns():
    work = work_of([("a.b", HOSTILE), ("c", HOSTILE)])
    kept, gone = weakref.ref(work.of("c")), weakref.ref(work.of("a.b"))
    work.remove("a.b", HOSTILE)
    work.changed.clear()
    assert gone() is None
    assert kept() is work.of("c")


def test_an_event_is_looked_at_by_its_own_facts_however_many_there_are():
    looked_up: list[str] = []

    class Fields(dict[str, str]):
        def get(self, name, default=None):
            looked_up.append(name)
            return super().get(name, default)

        def __getitem__(self, name):
            looked_up.append(name)
            return super().__getitem__(name)

    work = work_of([(f"t{number}", HOSTILE) for number in range(500)])
    work.begin(Fields(t7="x", other="y"), {})
    assert len(looked_up) < 10


harmless = st.sampled_from(["word", "se", "[a-m]x", "word.*x", "(?i)SECRET|x9", "é[a-z]?"])


@pytest.mark.parametrize("bound", [30, 200])
@given(data=st.data())
def test_what_is_untried_follows_from_what_is_there_and_from_the_event_alone(bound, data):
    limits = Limits(pattern_event_bytes_max=bound)
    added = data.draw(st.lists(st.tuples(facts, harmless), max_size=12))
    work, left = PatternWork(limits), list(added)
    before = data.draw(st.lists(st.dictionaries(facts, texts), max_size=3))
    for fact, pattern in added:
        work.add(fact, pattern)
        if before:
            cut(work, **before.pop())
    for number in data.draw(st.lists(st.integers(0, 11))):
        if number < len(left):
            work.remove(*left.pop(number))
    values = data.draw(st.dictionaries(facts, texts))
    other = work_of(data.draw(st.permutations(left)), limits)
    assert cut(work, **values) == cut(other, **values)
    for fact, pattern in left:
        text = values.get(fact, "")
        # A literal is looked for without RE2, so its work is not bounded.
        if literal_of(pattern) is None:
            expected = not work.is_untried(fact) and compile_pattern(pattern, limits).found_in(text)
            assert work.finder(fact, pattern)(text) is other.finder(fact, pattern)(text) is expected


patterns = st.sampled_from(
    [HOSTILE, GUARDED, "word.{0,30}[a-z]{9,}x", "a[ab]{30}c", "(a|b)*a(a|b){30}", "harmless"]
)
facts = st.sampled_from(["a", "b", "c"])
texts = st.lists(st.sampled_from(["word", "secret", "é", "x" * 9]), max_size=9).map("".join)


@pytest.mark.parametrize("bound", [1_000, 10_000])
@given(
    added=st.lists(st.tuples(facts, patterns), max_size=12),
    removed=st.lists(st.integers(0, 11)),
    values=st.dictionaries(facts, texts),
    data=st.data(),
)
def test_what_is_cut_follows_from_what_is_there_and_from_the_event_alone(bound, added, removed, values, data):
    limits = Limits(pattern_event_work_max=bound)
    work, left = work_of(added, limits), list(added)
    for number in removed:
        if number < len(left):
            work.remove(*left.pop(number))
    expected = cut(work_of(data.draw(st.permutations(left)), limits), **values)
    assert cut(work, **values) == expected
    assert cut(work, **dict(reversed(values.items()))) == expected


@given(added=st.lists(st.tuples(facts, patterns), max_size=12), values=st.dictionaries(facts, texts))
def test_what_is_tried_is_within_the_bound_and_what_is_cut_would_not_be(added, values):
    limits = Limits(pattern_event_work_max=10_000)
    work_there = {
        fact: sum(
            len(text.encode()) * compiled.work_per_byte
            for pattern in {pattern for there, pattern in added if there == fact}
            if (compiled := compile_pattern(pattern, limits)).explodes and _guard(pattern) in text
        )
        for fact, text in values.items()
    }
    gone = cut(work_of(added, limits), **values)
    tried = [work_there[fact] for fact in values if fact not in gone]
    assert sum(tried) <= 10_000
    assert all(sum(tried) + work_there[fact] > 10_000 for fact in gone)


def _guard(pattern: str) -> str:
    return pattern.partition(".")[0] if pattern[0] in "sw" else ""
