"""Many patterns on one fact."""

import pytest

from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.patterns import sets as pattern_sets
from engine.patterns.searching import compile_pattern
from engine.patterns.sets import PatternSets

LITERALS = [f"word{number}x" for number in range(3_000)]


def sets_of(patterns: list[str], **more: int) -> PatternSets:
    sets = PatternSets(DEFAULT_LIMITS, **more)
    for pattern in patterns:
        sets.add(pattern)
    return sets


def test_thousands_of_literals_are_all_told_apart():
    sets = sets_of(LITERALS)
    assert len(sets) == 3_000
    assert sets.found("word7x word2999 word31xword2998x") == ["word7x", "word31x", "word2998x"]
    assert sets.found("nothing") == []
    assert set(sets.found(" ".join(LITERALS))) == set(LITERALS)


def test_no_set_is_heavier_than_a_set_may_be_and_few_are_light():
    sets = sets_of(LITERALS)
    sets.found("")
    for number in range(500):
        sets.add(f"later{number}")
        sets.found("")
    weights = [one.weight for one in sets._sets]
    assert max(weights) <= pattern_sets.WEIGHT_MAX
    assert sum(weights) == sum(len(one.pattern) + 1 for one in sets._entries.values())
    assert len([weight for weight in weights if weight < pattern_sets.WEIGHT_MAX / 2]) <= 4


def test_adding_one_pattern_compiles_few_others(monkeypatch):
    compiled: list[int] = []
    compile_set = pattern_sets._compiled
    monkeypatch.setattr(
        pattern_sets,
        "_compiled",
        lambda entries, memory: compiled.append(len(entries)) or compile_set(entries, memory),
    )
    sets = sets_of(LITERALS)
    sets.found("")
    assert sum(compiled) == 3_000
    compiled.clear()
    for number in range(1_000):
        sets.add(f"later{number}")
    assert compiled == []
    sets.found("")
    assert sum(compiled) < 2_500
    compiled.clear()
    for number in range(200):
        sets.add(f"one more {number}")
        assert sets.found(f"one more {number}.")[-1:] == [f"one more {number}"] or number % 10
    # Each was compiled with the recent ones, and some of them in merges.
    assert sum(compiled) / 200 < 100
    assert len(compiled) == 200


def test_what_is_neither_added_nor_removed_is_not_compiled_again(monkeypatch):
    sets = sets_of(LITERALS[:100])
    sets.found("")
    monkeypatch.setattr(pattern_sets, "_compiled", lambda *_: pytest.fail("compiled again"))
    assert sets.found("word5x") == ["word5x"]
    sets.remove("word5x")
    assert sets.found("word5x word6x") == ["word6x"]
    sets.add("word5x")
    assert sets.found("word5x") == ["word5x"]


def test_removed_patterns_leave_their_set_once_they_are_half_of_it():
    sets = sets_of(LITERALS[:100])
    sets.found("")
    for pattern in LITERALS[:49]:
        sets.remove(pattern)
    sets.found("")
    assert [len(one.entries) for one in sets._sets] == [100]
    for pattern in LITERALS[49:60]:
        sets.remove(pattern)
    assert sets.found(" ".join(LITERALS[:70])) == LITERALS[60:70]
    assert [len(one.entries) for one in sets._sets] == [40]
    assert len(sets._entries) == 40
    for pattern in LITERALS[60:100]:
        sets.remove(pattern)
    assert sets.found("word99x") == []
    assert sets._sets == []
    assert sets._entries == {}


def test_a_pattern_is_there_until_it_was_removed_as_often_as_added():
    sets = sets_of(["abc", "abc", "[ab]+", "[ab]+"])
    assert len(sets) == 2
    for expected in (["[ab]+", "abc"], ["[ab]+", "abc"], []):
        assert sorted(sets.found("abc")) == expected
        if expected:
            sets.remove("abc")
            sets.remove("[ab]+")
    with pytest.raises(KeyError):
        sets.remove("abc")


@pytest.mark.storm
def test_a_set_that_runs_out_of_memory_is_noticed_and_its_patterns_are_tried_one_by_one():
    """A state that lists a thousand patterns takes more memory than RE2 made sure of before it began."""
    patterns = ["some", "absent", *(f"same.*{number:03}" for number in range(1_000))]
    exhausted = []
    for memory_bytes in range(20_000, 40_000, 500):
        sets = sets_of(patterns, set_memory_bytes_max=memory_bytes)
        assert sets.found("some of the same: 007, 999") == ["some", "same.*007", "same.*999"]
        assert sets.found("nothing") == []
        if all(one._set is not None for one in sets._sets):
            exhausted.append(sets.exhausted)
    assert 1 in exhausted
    assert exhausted[-1] == 0


def test_a_set_that_cannot_be_compiled_has_its_patterns_tried_one_by_one():
    sets = sets_of(LITERALS[:200], set_memory_bytes_max=4_000)
    assert sets.found("word7x") == ["word7x"]
    assert sets._sets[0]._set is None
    assert sets.exhausted == len(sets._sets)


def test_a_set_with_memory_enough_is_never_exhausted():
    sets = sets_of(LITERALS)
    for start in range(0, 3_000, 100):
        sets.found("".join(LITERALS[start : start + 100]))
    assert sets.exhausted == 0


def test_patterns_that_are_no_words_are_tried_only_where_their_literals_are():
    tried: list[str] = []

    def finder(pattern: str):
        return lambda text: (
            tried.append(pattern) is None and compile_pattern(pattern, DEFAULT_LIMITS).found_in(text)
        )

    sets = PatternSets(DEFAULT_LIMITS, finder=finder)
    for pattern in (r"(?i)\\users\\[^\\]+\\appdata", r"foo.+bar", r"(get|post) /\w+", "plain", r"\d"):
        sets.add(pattern)
    assert sets.found("plain text") == ["plain"]
    assert tried == [r"\d"]
    assert sets.found(r"C:\Users\x\APPDATA, post /a and foo") == [
        r"(?i)\\users\\[^\\]+\\appdata",
        r"(get|post) /\w+",
    ]
    assert set(tried) == {r"\d", r"(?i)\\users\\[^\\]+\\appdata", r"foo.+bar", r"(get|post) /\w+"}


def test_a_large_pattern_is_in_no_set():
    large = "|".join(f"alternative{number}" for number in range(200))
    sets = sets_of([large, "alternative7"])
    assert sets.found("an alternative77") == ["alternative7", large]
    assert [len(one.entries) for one in sets._sets] == [1]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (Limits(pattern_text_chars_max=9), "aéa" * 3),
        (Limits(pattern_work_max=12), "aéa" * 3),
        (Limits(pattern_work_max=9), "abc" * 3),
    ],
)
def test_a_text_of_exactly_the_bound_is_tried_and_one_character_more_is_not(limits, text):
    sets = PatternSets(limits)
    for pattern in ("a", "", "[ab]+", "a.*a"):
        sets.add(pattern)
    for tried in (text, text + "a"):
        singly = [p for p in ("a", "", "[ab]+", "a.*a") if compile_pattern(p, limits).found_in(tried)]
        assert sorted(sets.found(tried)) == sorted(singly)
        assert bool(singly) is (tried == text)


def test_hostile_texts_match_nothing_and_raise_nothing():
    sets = sets_of(["a", "", "[ab]+", r"\pL+", "a.{30}b"])
    for text in ("a" * 10**6, "é" * 10**6, "a\ud800", "\udfffa" * 40_000):
        assert sets.found(text) == []
    assert set(sets.found("a" * 32_768)) == {"a", "", "[ab]+", r"\pL+"}
    assert set(sets.found("中" * 32_768)) == {"", r"\pL+"}
    assert sets.found("中" * 32_769) == []
