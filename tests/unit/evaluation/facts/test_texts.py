"""The texts of an event that patterns are matched against, and which of them are surely short."""

import pytest

from engine.evaluation.facts.texts import Texts


@pytest.mark.parametrize(
    ("text", "chars_max", "short"),
    [("abc", 3, True), ("abc", 2, False), ("abcd", 9, True), ("abcde", 9, False), (12345, 2, True)],
)
@pytest.mark.parametrize("fact", ["a.b", "$v"])
def test_a_text_is_surely_short_if_each_character_may_take_four_bytes(
    fact: str, text: object, chars_max: int, *, short: bool
) -> None:
    texts = Texts([("a.b", 100), ("a.b", 16), ("$v", 16), ("c", 100)])
    fields, sent = ({"a": {"b": text}}, {}) if fact == "a.b" else ({}, {"v": text})
    assert texts.are_short(fields, sent, chars_max) is short


def test_each_text_is_found_with_the_smallest_bound_of_its_fact() -> None:
    texts = Texts([("b", 7), ("a", 100), ("a", 16), ("$v", 5)])
    assert len(texts) == 3
    found = texts.found_in({"b": "y", "a": "x", "c": "z"}, {"v": "w"})
    assert found == [("$v", 5, "w"), ("a", 16, "x"), ("b", 7, "y")]
    assert texts.found_in({"a": 1}, {}) == []


def test_one_text_that_may_be_too_long_is_enough() -> None:
    texts = Texts([("a", 16), ("b", 16), ("c", 16)])
    assert texts.are_short({"a": "abcd", "b": "abcd", "c": 5}, {}, 9)
    assert not texts.are_short({"a": "abcd", "b": "abcde", "c": 5}, {}, 9)


def test_without_patterns_every_text_is_short() -> None:
    texts = Texts([])
    assert not texts
    assert texts.are_short({"a": "x" * 1_000}, {}, 1)
