"""Paths of keys: whose slices they are, and which events belong to them."""

import pytest

from engine import parse
from engine.evaluation.paths import Filter, is_filtered, membership_of, order_of
from engine.evaluation.requirements import Births, requirements_of
from engine.language.condition import Keyed


def test_a_key_with_a_where_that_looks_back_has_slices_of_its_own_for_each_birth() -> None:
    now, back = parse("per k where a == 1 b == 1"), parse("per k where per j not once a == 1 b == 1")
    assert isinstance(now, Keyed)
    assert isinstance(back, Keyed)
    assert now.where is not None
    assert back.where is not None
    for birth in (3, 4):
        assert Births(birth).step(now, ("i",)) == ("i", Filter("k", now.where, -1))
        assert Births(birth).step(back, ()) == (Filter("k", back.where, birth),)


@pytest.mark.parametrize(
    ("rule", "membership", "order"),
    [
        (
            "per i per k where a == 1 per j once b == 1",
            "per i a == 1",
            ("i", 'k\0-1\0{"leaf":{"fact":"a","op":"eq","value":1}}', "j"),
        ),
        (
            "per k where once a == 1 per j where b == 1 per l once c == 1",
            "per k where once a == 1 b == 1",
            (
                'k\0007\0{"once":{"leaf":{"fact":"a","op":"eq","value":1}}}',
                'j\0-1\0{"leaf":{"fact":"b","op":"eq","value":1}}',
                "l",
            ),
        ),
    ],
)
def test_which_events_belong_to_the_slices_of_a_filtered_path(
    rule: str, membership: str, order: tuple[str, ...]
) -> None:
    path = max((use.path for use in requirements_of(parse(rule), Births(7)).memories), key=len)
    assert is_filtered(path)
    assert membership_of(path) == parse(membership)
    assert order_of(path) == order
    assert not is_filtered(("i", "j"))
    assert order_of(("i", "j")) == ("i", "j")
