"""How the values of facts are shown: whole where they are short, else cut to about 1 000 characters."""

from typing import Any

import pytest

from engine.evaluation.facts.shown import VALUE_CHARS_MAX, shown


def _named(count: int, member: Any) -> dict[str, Any]:
    return {f"{number:04}": member for number in range(count)}


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1.5,
        "",
        "x" * 1_000,
        [1, [2]],
        {"a": {"b": []}},
        10**4_000,
        [],
        ["x" * 995, "y"],
    ],
)
def test_short_values_are_shown_whole(value: object) -> None:
    assert shown(value) == (value, False)


@pytest.mark.parametrize(
    "value",
    [
        ["x"] * 100_000,
        {str(number): 1 for number in range(100_000)},
        {"x" * 5_000: 1},
        [10**4_000] * 9,
        [0.1234567890123456] * 10_000,
        [[[]]] * 10_000,
    ],
)
def test_large_values_are_shown_in_part(value: object) -> None:
    part, is_cut = shown(value)
    assert is_cut
    assert len(repr(part)) < 5 * VALUE_CHARS_MAX


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("x" * 1_001, "x" * 1_000 + "…"),
        # Two characters stand between members.
        (["x" * 995, "yy"], ["x" * 995, "y…"]),
        (["x" * 996, "y"], ["x" * 996]),
        ([["x" * 993, "yy"]], [["x" * 993, "y…"]]),
        ({"a": "x" * 999, "b": "y"}, {"a": "x" * 997 + "…"}),
        # A name takes room before its member, which may leave none.
        ({"x" * 999: "yy"}, {"x" * 998 + "…": "…"}),
        ({"x" * 5_000: "yy", "z": 1}, {"x" * 998 + "…": "…"}),
        ({"a": 1, "text": "x" * 2_000}, {"a": 1, "text": "x" * 991 + "…"}),
    ],
)
def test_what_is_too_long_is_cut_to_the_room_that_is_left(value: Any, part: Any) -> None:
    assert shown(value) == (part, True)


@pytest.mark.parametrize(
    ("member", "count"),
    [("x", 333), (None, 167), (True, 167), (False, 143), (1.5, 200), (-2e-300, 111), (2**40, 67), ([], 499)],
)
def test_members_are_shown_as_long_as_there_is_room(member: Any, count: int) -> None:
    assert shown([member] * count) == ([member] * count, False)
    assert shown([member] * (count + 1)) == ([member] * count, True)


@pytest.mark.parametrize(("member", "count"), [("xxxx", 100), ("x" * 14, 50), (None, 100)])
def test_named_members_are_shown_as_long_as_there_is_room(member: Any, count: int) -> None:
    assert shown(_named(count, member)) == (_named(count, member), False)
    assert shown(_named(count + 1, member)) == (_named(count, member), True)
