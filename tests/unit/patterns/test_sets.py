"""Many expressions that are searched for together."""

from collections import Counter

import pytest

from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.patterns import sets as pattern_sets
from engine.patterns.compiled_pattern import CompiledPattern, compile_pattern, compiled_set
from engine.patterns.fact_patterns import TRIED_EACH_MAX, TRIED_SINGLY_MAX, FactPatterns
from engine.patterns.lines import Line
from engine.patterns.sets import PatternSets

EXPLODING = "[ab].{30}c"
WORK = compile_pattern(EXPLODING, DEFAULT_LIMITS).work_per_byte
LITERALS = [f"word{number}x" for number in range(3_000)]


def add(sets: PatternSets, *literals: str) -> None:
    for literal in literals:
        sets.add(literal, literal, Line.ANY, is_whole=True)


def found(sets: PatternSets, text: str) -> list[str]:
    return [*sets.candidates(text.encode())]


def sets_of(literals: list[str]) -> PatternSets:
    sets = PatternSets()
    add(sets, *literals)
    sets.compile_new()
    return sets


def patterns_of(patterns: list[str], limits: Limits = DEFAULT_LIMITS) -> FactPatterns:
    made = FactPatterns(limits)
    for pattern in patterns:
        made.add(pattern)
    return made


@pytest.fixture
def compiled(monkeypatch) -> list[int]:
    """How many expressions are compiled together, one time after the other."""
    counts: list[int] = []
    real = pattern_sets.compiled_set
    monkeypatch.setattr(
        pattern_sets, "compiled_set", lambda each, memory: counts.append(len(each)) or real(each, memory)
    )
    return counts


def test_no_set_is_heavier_than_a_set_may_be_and_few_are_light():
    sets = sets_of(LITERALS)
    for number in range(500):
        add(sets, f"later{number}")
        sets.compile_new()
    weights = [one.weight for one in sets._sets]
    assert max(weights) <= pattern_sets.WEIGHT_MAX
    assert sum(weights) == sets.weight == sum(len(one.pattern) + 1 for one in sets._entries.values())
    assert len([weight for weight in weights if weight < pattern_sets.WEIGHT_MAX / 2]) <= 4


def test_adding_one_expression_compiles_few_others(compiled):
    sets = sets_of(LITERALS)
    assert sum(compiled) == 3_000
    compiled.clear()
    add(sets, *(f"later{number}" for number in range(1_000)))
    assert compiled == []
    sets.compile_new()
    assert sum(compiled) < 2_500
    compiled.clear()
    for number in range(200):
        add(sets, f"one more {number}")
        sets.compile_new()
        assert found(sets, f"one more {number}.")[-1:] == [f"one more {number}"] or number % 10
    # Each was compiled with the recent ones, and some of them in merges.
    assert sum(compiled) / 200 < 100
    assert len(compiled) == 200


def test_removed_expressions_leave_their_set_once_they_are_half_of_it():
    sets = sets_of(LITERALS[:100])
    for pattern in LITERALS[:49]:
        sets.remove(pattern)
    sets.compile_new()
    assert [len(one.entries) for one in sets._sets] == [100]
    for pattern in LITERALS[49:60]:
        sets.remove(pattern)
    assert found(sets, " ".join(LITERALS[:70])) == LITERALS[60:70]
    assert [len(one.entries) for one in sets._sets] == [40]
    assert len(sets._entries) == 40
    for pattern in LITERALS[60:100]:
        sets.remove(pattern)
    assert found(sets, "word99x") == []
    assert sets._sets == []
    assert sets._entries == {}
    assert sets.weight == 0


def test_a_set_that_runs_out_of_memory_or_cannot_be_compiled_says_so():
    """A state that lists a thousand patterns takes more memory than RE2 made sure of before it began."""
    patterns = ["some", "absent", *["same"] * 1_000]
    found_in = []
    for memory_bytes in range(20_000, 40_000, 500):
        match = compiled_set(patterns, memory_bytes)
        if match is not None:
            found_in.append(match(b"some of the same"))
    assert found_in[0] is None
    assert found_in[-1] == [0, *range(2, 1_002)]
    assert compiled_set(patterns, 4_000) is None


def test_the_heaviest_sets_never_run_out_of_memory():
    """Each is a prefix of the next, so that a state lists them all."""
    nested = ["a" * length for length in range(1, 188)]
    alike = [f"{number:04}" for number in range(3_400)]
    several = [f"(?i)k{number}s" for number in range(1_500)]
    for patterns in (nested, alike, several):
        sets = sets_of(patterns)
        text = "".join(patterns).replace("(?i)", "")
        assert set(found(sets, text)) == set(patterns)
        assert max(one.weight for one in sets._sets) > 0.6 * pattern_sets.WEIGHT_MAX


def test_patterns_that_are_no_literals_are_tried_only_where_their_literals_are(monkeypatch):
    tried: list[str] = []
    real = FactPatterns.found

    def noted(self, pattern, compiled, text):
        tried.append(pattern)
        return real(self, pattern, compiled, text)

    monkeypatch.setattr(FactPatterns, "found", noted)
    known = [r"(?i)\\users\\[^\\]+\\appdata", r"foo.+bar", r"(get|post) /\w+", "plain", r"\d"]
    patterns = patterns_of(known)
    assert patterns.found_among(known, "plain text") == ["plain"]
    assert set(tried) == {"plain", r"\d"}
    assert patterns.found_among(known, r"C:\Users\x\APPDATA, post /a and foo") == [
        r"(?i)\\users\\[^\\]+\\appdata",
        r"(get|post) /\w+",
    ]
    assert set(tried) == set(known)


def test_a_large_pattern_is_in_no_set():
    large = "alternative" * 200
    sets = sets_of([large, "alternative7"])
    assert found(sets, "an alternative77") == ["alternative7", large]
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
    known = ["a", "", "[ab]+", "a.*a"]
    patterns = patterns_of(known, limits)
    for tried in (text, text + "a"):
        singly = [pattern for pattern in known if compile_pattern(pattern, limits).found_in(tried)]
        assert sorted(patterns.found_among(known, tried)) == sorted(singly)
        assert bool(singly) is (tried == text)


def test_a_set_stays_until_more_than_half_of_it_is_removed(compiled):
    sets = sets_of(["abcd", "efgh", "ijkl", "mnop"])
    compiled.clear()
    for _ in range(9):
        # What is added again is no longer removed.
        sets.remove("abcd")
        add(sets, "abcd")
    sets.remove("abcd")
    sets.remove("efgh")
    assert found(sets, "abcd ijkl") == ["ijkl"]
    assert compiled == []
    sets.remove("ijkl")
    assert found(sets, "ijkl mnop") == ["mnop"]
    assert compiled == [1]


def test_a_pattern_counts_once_in_bytes_and_work_and_no_more_when_it_is_gone():
    text = "ab literal" * 40
    none, once = patterns_of([]), patterns_of([EXPLODING, "literal", "[l]iteral"])
    twice = patterns_of([EXPLODING, "literal", "[l]iteral"] * 2)
    for _ in range(2):
        assert twice.bytes_of(text) == once.bytes_of(text)
        assert twice.work_at_most(text) == once.work_at_most(text) == len(text) * WORK
        assert twice.exploding == 1
        for pattern in (EXPLODING, "literal", "[l]iteral"):
            twice.remove(pattern)
    for pattern in (EXPLODING, "literal", "[l]iteral"):
        assert twice.compiled(pattern) is compile_pattern(pattern, DEFAULT_LIMITS)
    assert (twice.bytes_of(text), twice.work_at_most(text), twice.exploding) == (0, 0, 0)
    assert (none.bytes_of(text), none.work_at_most(text), none.exploding) == (0, 0, 0)
    assert once.work_at_most("é" * 5) == 4 * 5 * WORK


@pytest.mark.parametrize(
    ("known", "limits", "bytes_"),
    [
        (["literals"], DEFAULT_LIMITS, 90),
        (["literals", "[x].[y]"], DEFAULT_LIMITS, 90 + 3_600),
        (["literals", "[x].[y]"], Limits(pattern_event_bytes_max=90), 90 + 3_600),
        # Here the one pass is too much already.
        (["literals", "[x].[y]"], Limits(pattern_event_bytes_max=89), 90),
        (["literals"], Limits(pattern_text_chars_max=3_600), 90),
        (["literals"], Limits(pattern_text_chars_max=3_599), 0),
    ],
)
def test_a_text_counts_once_for_each_pattern_that_is_tried_on_it(known, limits, bytes_):
    # A pass over 3 600 bytes for a set of 9 bytes counts as 90 bytes.
    assert patterns_of(known, limits).bytes_of("literals".ljust(3_600)) == bytes_


@pytest.fixture
def tried(monkeypatch) -> Counter[str]:
    """How many patterns are tried one by one, and how often all are searched for."""
    counts = Counter[str]()

    def count(owner: type, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda self, text: counts.update([name]) or real(self, text))

    count(CompiledPattern, "found_in")
    count(PatternSets, "candidates")
    return counts


def test_patterns_that_are_asked_for_one_by_one_are_searched_for_together_once_they_are_many(tried):
    known = LITERALS[: TRIED_SINGLY_MAX + 5]
    patterns = patterns_of(known)
    text = f"{known[3]} {known[-1]}"
    verdicts = []
    for number, pattern in enumerate(known):
        assert tried == Counter(found_in=min(number, TRIED_SINGLY_MAX), candidates=number > TRIED_SINGLY_MAX)
        verdicts.append(patterns.found(pattern, patterns.compiled(pattern), text))
    assert [pattern for pattern, found in zip(known, verdicts, strict=True) if found] == [known[3], known[-1]]


@pytest.mark.parametrize("extra", [0, 1])
def test_few_patterns_are_tried_each_and_more_are_searched_for_together(tried, extra):
    known = LITERALS[: TRIED_EACH_MAX + extra]
    patterns = patterns_of(known)
    assert patterns.found_among(known[1:], " ".join(known)) == known[1:]
    assert tried == (Counter(candidates=1) if extra else Counter(found_in=TRIED_EACH_MAX - 1))
    tried.clear()
    patterns.untried = True
    assert patterns.found_among(known, "another text") == []
    assert not tried


def test_sets_are_merged_where_texts_are_searched_often_enough(compiled):
    sets = PatternSets()
    for start, end in ((0, 800), (800, 900), (900, 910)):
        add(sets, *LITERALS[start:end])
        sets.compile_new()
    text = f"{LITERALS[3]} {LITERALS[905]} " + "-" * 60_000
    assert compiled == [800, 100, 10]
    for _ in range(5 * pattern_sets.MERGED_AFTER_BYTES // len(text)):
        assert found(sets, text) == [LITERALS[3], LITERALS[905]]
    assert compiled[3:] == [110, 910]
