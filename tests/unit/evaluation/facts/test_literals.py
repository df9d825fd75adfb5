"""The texts of `contains`: searched for together in a long text, and one by one where that costs less."""

from typing import Any

import pytest

from engine import Detector
from engine.evaluation.facts import lookups
from engine.evaluation.facts.lookups import SEARCHED_APART_MAX, Lookup, Lookups
from tests.differential.modes import index_from

MANY = [f"word{number:02}" for number in range(40)]
LONG = "word07, word31 and word5 " * 500


def _lookup(literals: list[str]) -> Lookup:
    lookup = Lookups().of("x")
    for literal in literals:
        lookup.add(literal)
    return lookup


@pytest.mark.parametrize("chars", ["ab", "\x00\x01\x7f.*\\[", "é\U0001f600ß", "01 "], ids=ascii)
def test_literals_are_found_together_as_one_by_one(chars: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "SEARCHED_CHARS_MAX", 0)
    words = sorted({a + b + c for a in chars for b in chars for c in ("", *chars)} | {"x" * 3_000, *"uvwxyz"})
    lookup = _lookup(words)
    for removed in words[::5]:
        lookup.remove(removed)
    for text in ("", chars, chars * 3, "".join(words), "x" * 2_999, "\ud800" + chars):
        expected = {literal for literal in lookup.literals if literal in text}
        assert lookup.found(text) == expected
        lookup.add("new" + text[1:4])
        assert lookup.found(text) == expected, "what is added later is not in this text"
        lookup.remove("new" + text[1:4])
        lookup.forget()


@pytest.mark.parametrize("count", [1, SEARCHED_APART_MAX, SEARCHED_APART_MAX + 1, 40])
@pytest.mark.parametrize("text", ["", "word00", "word0", LONG, LONG.replace("word07", "word00")], ids=len)
def test_any_number_of_literals_is_found_in_a_text_of_any_length(count: int, text: str) -> None:
    lookup = _lookup(MANY[:count])
    assert lookup.found(text) == {literal for literal in MANY[:count] if literal in text}
    for literal in MANY:
        assert lookup.contains(text, literal) is (literal in text), "one of no rule too"


@pytest.mark.parametrize(
    ("value", "wanted", "contained"),
    [
        ("word07", "word", True),
        ("word07", 7, False),
        ("7", 7, False),
        (7, "7", False),
        (7, 7, False),
        ({"word07": 1}, "word07", False),
        (None, "word07", False),
        (["word07"], "word07", True),
        (["word07"], "word", False),
        ([7.0], 7, True),
        ([1], True, False),
    ],
)
def test_a_text_contains_its_parts_and_an_array_its_elements(
    value: Any, wanted: Any, *, contained: bool
) -> None:
    for literals in ([], MANY):
        assert _lookup(literals).contains(value, wanted) is contained


def test_each_of_several_texts_is_searched_once_for_all_literals(searches: list[bytes]) -> None:
    lookup = _lookup(MANY)
    other = LONG.replace("07", "08")
    for text, found in ((LONG, {"word07", "word31"}), (other, {"word08", "word31"})):
        searches.clear()
        assert {literal for literal in MANY if lookup.contains(text, literal)} == found
        assert searches == [text.encode()]
        assert lookup.found(text) == found
        assert len(searches) == 1


def test_a_short_text_is_searched_for_each_literal(searches: list[bytes]) -> None:
    lookup = _lookup(MANY)
    assert lookup.found("word07") == {"word07"}
    assert lookup.contains("word07", "word07")
    assert searches == []


def test_rules_that_go_leave_no_literal_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, 0)
    detector = Detector()
    kept = detector.add_rule("kept", 'x contains "ab"')
    ids = [detector.add_rule("gone", f'x contains "{number}" and y contains "ab"') for number in range(20)]
    text = "ab 1 2 3" * 5_000
    assert [action["ruleId"] for action in detector.evaluate({"x": text}, 0)] == [kept]
    for rule_id in ids:
        detector.remove_rule(rule_id)
    assert detector.rule_set.lookups.of("x").literals == {"ab": 1}
    assert detector.rule_set.lookups.of("y").literals == {}
    assert [action["ruleId"] for action in detector.evaluate({"x": text}, 0)] == [kept]
