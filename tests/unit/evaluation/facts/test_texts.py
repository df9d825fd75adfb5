"""The texts of an event that patterns are matched against, and the arrays: which of them are surely short."""

import pytest

from engine.evaluation.facts.look_up import ELEMENTS_MAX, element_fact
from engine.evaluation.facts.texts import arrays as arrays_of
from engine.evaluation.facts.texts import texts as texts_of


@pytest.mark.parametrize(
    ("text", "chars_max", "short"),
    [("abc", 3, True), ("abc", 2, False), ("abcd", 9, True), ("abcde", 9, False), (12345, 2, True)],
)
@pytest.mark.parametrize("others", [0, 1, 20])
@pytest.mark.parametrize("fact", ["a.b", "$v", element_fact("files", "name")])
def test_a_text_is_surely_short_if_each_character_may_take_four_bytes(
    fact: str, others: int, text: object, chars_max: int, *, short: bool
) -> None:
    more = [(f"other{number}", 100) for number in range(others)]
    texts = texts_of([(fact, 100), (fact, 16), *more], chars_max)
    fields = {"a": {"b": text}} if fact == "a.b" else {"files": [{"name": text}, {}, 1]}
    sent = {}
    if fact == "$v":
        fields, sent = {}, {"v": text}
    assert texts.are_small(fields, sent) is short


def test_each_text_is_found_with_the_smallest_bound_of_its_fact() -> None:
    texts = texts_of([("b", 7), ("a", 100), ("a", 16), ("$v", 5)], 100)
    assert len(texts) == 3
    found = texts.largest_in({"b": "y", "a": "x", "c": "z"}, {"v": "w"})
    assert found == [("$v", 5, "w"), ("a", 16, "x"), ("b", 7, "y")]
    assert texts.largest_in({"a": 1}, {}) == []


def test_one_text_that_may_be_too_long_is_enough() -> None:
    texts = texts_of([("a", 16), ("b", 16), ("c", 16)], 9)
    assert texts.are_small({"a": "abcd", "b": "abcd", "c": 5}, {})
    assert not texts.are_small({"a": "abcd", "b": "abcde", "c": 5}, {})


def test_without_patterns_every_text_is_short() -> None:
    texts = texts_of([], 1)
    assert not texts
    assert texts.are_small({"a": "x" * 1_000}, {})


@pytest.mark.parametrize("others", [0, 1, 20])
@pytest.mark.parametrize("fact", ["a", "a.b", "$v"])
@pytest.mark.parametrize("count", [ELEMENTS_MAX, ELEMENTS_MAX + 1])
def test_an_array_is_short_if_its_elements_are_looked_at(fact: str, count: int, others: int) -> None:
    arrays = arrays_of([fact, *(f"other{number}" for number in range(others))])
    array = [0] * count
    fields = {"a": {"b": array}} if fact == "a.b" else {"a": array}
    is_short = arrays.are_small({} if fact == "$v" else fields, {"v": array})
    assert is_short is (count == ELEMENTS_MAX)
    found = arrays.largest_in({} if fact == "$v" else fields, {"v": array})
    assert found == [(fact, ELEMENTS_MAX, array)]
