"""Patterns from untrusted callers: what is found, what is refused, and what bounds the length of a search."""

import pytest

from engine.language.diagnostics import ConditionError
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.language.text.parser import parse
from engine.patterns import compiled_pattern
from engine.patterns.automaton import counted
from engine.patterns.compiled_pattern import CompiledPattern, PatternError, judged_pattern, program_size
from engine.patterns.syntax.reader import read


def found(pattern: str, text: str, limits: Limits = DEFAULT_LIMITS) -> bool:
    return judged_pattern(pattern, limits).found_in(text)


@pytest.mark.parametrize(
    "pattern", ["(", "a**", "[z-a]", r"\1", "(?=a)", "a{1001}", r"\C\8", "(?P<n->a)", "a)"]
)
def test_what_re2_refuses_is_refused_in_its_words(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"^[a-z )]+: .+$") as refused:
        judged_pattern(pattern, DEFAULT_LIMITS)
    assert "too large" not in str(refused.value)


@pytest.mark.parametrize("pattern", ["a{1000}.{1000}", r"\pL{300}", "((a{30}){30}){30}"])
def test_what_would_be_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"too large|invalid repetition size"):
        judged_pattern(pattern, DEFAULT_LIMITS)


@pytest.mark.parametrize("unit", ["a?", "a??", "[ab]?", "(a)?", "a{0,1}", "a{0,2}"])
def test_what_would_be_far_too_large_is_refused_before_it_is_compiled(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RE2 would take seconds: its time is quadratic in a row of optional copies."""
    memories: list[int] = []
    options = compiled_pattern._options
    monkeypatch.setattr(
        compiled_pattern, "_options", lambda bytes_max: memories.append(bytes_max) or options(bytes_max)
    )
    with pytest.raises(
        PatternError, match=r"^it is too large: when compiled, at most 5000 steps are allowed$"
    ):
        judged_pattern(unit * (60_000 // len(unit)), DEFAULT_LIMITS)
    (memory_bytes,) = memories
    assert memory_bytes < 150_000


@pytest.mark.parametrize(
    "pattern",
    [
        "a?" * 2_490,
        "a" * 4_990,
        "[^a]" * 550,
        "a{1000}" * 4,
        "(a|bc)" * 1_200,
        "(|ab)" * 1_600,
        "|".join(f"w{number}" for number in range(10_000)),
    ],
    ids=lambda pattern: pattern[:9],
)
def test_what_is_within_the_bound_is_not_refused_for_its_memory(pattern: str) -> None:
    assert program_size(pattern) <= DEFAULT_LIMITS.pattern_program_max
    assert judged_pattern(pattern, DEFAULT_LIMITS)


def test_the_bound_on_the_compiled_size_is_exact() -> None:
    size = program_size("a{50}")
    assert judged_pattern("a{50}", Limits(pattern_program_max=size)).found_in("a" * 50)
    with pytest.raises(
        PatternError, match=f"^it is too large: when compiled, at most {size - 1} steps are allowed$"
    ):
        judged_pattern("a{50}", Limits(pattern_program_max=size - 1))


def test_the_more_work_a_pattern_is_the_shorter_the_texts_that_it_takes() -> None:
    work = judged_pattern("[ab].{8}c", DEFAULT_LIMITS).work_per_byte
    pattern = judged_pattern("[ab].{8}c", Limits(pattern_work_max=12 * work))
    assert work == 10
    assert pattern.text_bytes_max == 12
    assert pattern.found_in("a" + "x" * 8 + "c..")
    assert not pattern.found_in("a" + "x" * 8 + "c...")
    assert pattern.found_in("aéxxxxxxxc")
    assert pattern.found_in("aééxxxxxxc")
    assert not pattern.found_in("aééxxxxxxc.")
    assert pattern.too_long("é" * 7)
    assert not pattern.too_long("é" * 6)


def test_a_harmless_pattern_takes_texts_of_any_length_however_large_it_is() -> None:
    words = "|".join(f"word{number}x" for number in range(400))
    pattern = judged_pattern(words, DEFAULT_LIMITS)
    assert program_size(words) > 500
    text = "é" * (DEFAULT_LIMITS.pattern_text_chars_max - 8) + "word399x"
    assert pattern.found_in(text)
    assert not pattern.found_in(text + " ")


@pytest.mark.parametrize("letter", ["a", "é", "中", "\U0001f600"])
def test_the_bound_on_texts_counts_characters_and_that_on_work_bytes(letter: str) -> None:
    size = len(letter.encode())
    for limits, count in (
        (Limits(pattern_text_chars_max=12), 12),
        (Limits(pattern_work_max=12 * size), 12),
        (Limits(pattern_work_max=13 * size - 1), 12),
    ):
        pattern = judged_pattern(f"{letter}$", limits)
        assert pattern.found_in(letter * count)
        assert not pattern.too_long(letter * count)
        assert not pattern.found_in(letter * (count + 1))
        assert pattern.too_long(letter * (count + 1))


@pytest.mark.parametrize("letter", ["a", "é", "中", "\ud800"])
@pytest.mark.parametrize("expression", ["a", "", r"\pL", "[ab].{30}c", "(?s).", "a|é|中"])
def test_texts_of_a_million_characters_hold_no_pattern(letter: str, expression: str) -> None:
    pattern = judged_pattern(expression, DEFAULT_LIMITS)
    assert pattern.found_in(letter * 1_000_000) is False
    assert pattern.too_long(letter * 1_000_000)


def test_a_search_that_runs_out_of_memory_still_answers_rightly() -> None:
    """RE2 falls back to a slower search within its memory; what is there must be found all the same."""
    pattern = judged_pattern("[ab]{200}[ab]*a[ab]{180}c$", DEFAULT_LIMITS)
    text = "abbab" * 350 + "a" + "ba" * 90
    assert len(text) < pattern.text_bytes_max
    assert pattern.found_in(text + "c")
    assert not pattern.found_in(text + "d")


def test_compiling_again_gives_the_same_object() -> None:
    assert judged_pattern("again", DEFAULT_LIMITS) is judged_pattern("again", DEFAULT_LIMITS)


def test_unicode_classes_are_bounded_over_a_whole_condition() -> None:
    """RE2 takes 0.1 ms for each; sixty thousand bytes of them would take seconds."""
    few, many = r"\pL" * 4, r"\pL\PN" * 50
    leaves = [{"leaf": {"fact": "a", "op": "matches", "value": few}}] * 250
    assert parse({"any": leaves})
    with pytest.raises(ConditionError, match=r"any\[250\].*at most 1000"):
        parse({"any": [*leaves, {"leaf": {"fact": "a", "op": "matches", "value": r"\pN"}}]})
    with pytest.raises(ConditionError) as refused:
        parse({"any": [{"leaf": {"fact": "a", "op": "matches", "value": many}}] * 11})
    assert {code for code, _ in refused.value.entries} == {1302}
    assert ["at most 1000" in message for _, message in refused.value.entries] == [False] * 10 + [True]


def test_what_is_refused_is_printed_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternError):
        judged_pattern("(", DEFAULT_LIMITS)
    assert capfd.readouterr() == ("", "")


def test_a_literal_is_compiled_when_it_is_first_tried_and_all_others_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = [judged_pattern(pattern, DEFAULT_LIMITS) for pattern in ("lit", "[l]it", "[ab].{30}c")]
    compiled: list[str] = []
    monkeypatch.setattr(
        CompiledPattern, "_compiled", lambda self, _: compiled.append(self._pattern) or (lambda _: True)
    )
    assert [pattern.found_in("lit") for pattern in judged for _ in range(2)] == [True] * 4 + [False] * 2
    assert compiled == ["lit"]


@pytest.mark.parametrize(
    ("pattern", "is_whole"),
    [
        ("abc", True),
        ("--", True),
        ("ab1[0-9]", True),
        ("--1[0-9]", False),
        ("ab[0-9]", False),
        ("abc.{0,9}", False),
        (r"\Qabc\E", False),
        # Few classes, but ever more states.
        ("0[01]{4}[01]{4}[01]{4}[01]{4}abc", False),
    ],
)
def test_a_search_for_many_has_whole_those_that_have_few_states_together(
    pattern: str, is_whole: bool
) -> None:
    assert judged_pattern(pattern, DEFAULT_LIMITS).is_whole is is_whole


@pytest.mark.parametrize("pattern", ["[ab]+", "a|b", r"\Qabc\E", "[ab].{8}c"])
def test_preparation_counts_characters_instructions_and_steps(pattern: str) -> None:
    tree = read(pattern)
    steps = counted(tree).steps if tree else 0
    expected = 300 + 20 * len(pattern) + 4 * program_size(pattern) + steps
    assert judged_pattern(pattern, DEFAULT_LIMITS).preparation == expected


def test_the_preparation_of_a_literal_counts_its_characters() -> None:
    assert judged_pattern("^a literal$", DEFAULT_LIMITS).preparation == 100 + 4 * 11


def test_a_text_on_which_a_pattern_is_not_tried_is_no_work() -> None:
    pattern = judged_pattern("[ab].{30}c", Limits(pattern_text_chars_max=9))
    assert pattern.work("x" * 9, 9) == 9 * pattern.work_per_byte
    assert pattern.work("x" * 10, 10) == 0
