"""What the patterns of one event cost, whatever the rules are like: bytes that are searched are counted."""

import pytest

from engine import Detector, Limits
from engine.patterns.compiled_pattern import CompiledPattern
from engine.patterns.sets import PatternSets

LIMITS = Limits(pattern_event_bytes_max=200_000)
PLAIN = "the quick brown fox 0123456789 " * 300

SHAPES: dict[str, tuple[list[str], dict[str, object]]] = {
    "alone": ([f"t matches '[a-m][n-z]{number}'" for number in range(60)], {"t": PLAIN}),
    "many bytes a character": ([f"t matches '[a-m]{number}'" for number in range(60)], {"t": "😀" * 9_000}),
    "in one rule": ([" or ".join(f"t matches '[a-m]{number}'" for number in range(130))], {"t": PLAIN}),
    "on several facts": (
        [f"t{number % 8} matches '[a-m]{number}'" for number in range(120)],
        {f"t{number}": PLAIN for number in range(8)},
    ),
    "behind a test": (
        [f"x == 1 and t matches 'lit{number}.*q'" for number in range(80)],
        {"t": PLAIN, "x": 1},
    ),
    "the same in each rule": (
        [f"x == 1 and (y == {number} or t matches '[a-m][n-z]x')" for number in range(80)],
        {"t": PLAIN, "x": 1},
    ),
    "where they are not": ([f"not t matches 'lit{number}'" for number in range(80)], {"t": PLAIN}),
    "all literals there": (
        [f"t matches 'g{number:03}.*z'" for number in range(80)],
        {"t": "".join(f"g{number:03}" for number in range(80)) * 24},
    ),
    "within the past": ([f"once t matches '.*{number}.*q'" for number in range(60)], {"t": PLAIN}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bytes_that_are_searched_for_one_event_are_bounded(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions, fields = SHAPES[shape]
    detector = Detector(limits=LIMITS)
    for condition in conditions:
        detector.add_rule("n", condition)
    searched = 0
    search = CompiledPattern.found_in

    def counted(self: CompiledPattern, text: str) -> bool:
        nonlocal searched
        searched += len(text.encode())
        return search(self, text)

    monkeypatch.setattr(CompiledPattern, "found_in", counted)
    for time in range(3):
        searched = 0
        detector.submit(dict(fields), time)
        assert searched <= LIMITS.pattern_event_bytes_max


def test_past_the_bound_nothing_matches_and_the_reply_says_so() -> None:
    detector = Detector(limits=LIMITS)
    for number in range(100):
        detector.add_rule("n", f"t matches '[a-m]{number}' or u matches '[a-m]{number}'")
    outcome = detector.submit({"t": PLAIN + "a1", "u": "a1"}, 0)
    assert len(outcome.actions) == 1
    assert [tuple(message) for message in outcome.messages] == [
        (2004, "`t` has 9302 characters; its patterns are not tried: together they would take too long")
    ]
    assert len(detector.submit({"t": "a1 a2"}, 1).actions) == 2


def test_what_was_found_is_asked_of_no_pattern_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deciding whether it is too much goes through the text once, though it is decided twice."""
    detector = Detector(limits=LIMITS)
    for number in range(100):
        detector.add_rule("n", f"t matches 'lit{number}.*q'")
    asked = 0
    counted = PatternSets.candidates

    def noted(self: PatternSets, text: bytes) -> dict[str, bool]:
        nonlocal asked
        asked += 1
        return counted(self, text)

    monkeypatch.setattr(PatternSets, "candidates", noted)
    detector.submit({"t": PLAIN}, 0)
    assert asked == 1


@pytest.mark.parametrize("pattern", ["abc", "^abc", "abc$", "(?s)^abcabc$", "a.c", "(?i)ABC"])
def test_no_pattern_is_found_in_a_text_that_is_too_long(pattern: str) -> None:
    detector = Detector(limits=Limits(pattern_text_chars_max=5))
    detector.add_rule("n", f"t matches '{pattern}'")
    [entry] = detector.submit({"t": "abcabc"}, 0).messages
    assert entry.code == 2004
    assert not detector.submit({"t": "abcabc"}, 1).actions
    assert detector.submit({"t": "abc"}, 2).actions or pattern.startswith("(?s)")
