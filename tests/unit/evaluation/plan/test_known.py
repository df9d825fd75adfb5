"""What is decided beforehand by a fact that is known, and which events belong to the slices of a path."""

import pytest

from engine import parse
from engine.evaluation.paths import Filter, is_filtered, membership_of, on, order_of, step_of
from engine.evaluation.kernel.selection.known import Known, Value, Within, truth
from engine.evaluation.requirements import requirements_of
from engine.language.condition import FilteredKey, Keyed

TWO, WITHIN, BETWEEN = Value("a", 2), Within("a", 2.0, 5.0), Within("a", "b", "d")


@pytest.mark.parametrize(
    ("condition", "known", "expected"),
    [
        ("a == 2", TWO, True),
        ("a == 2.0", TWO, True),
        ("a == 3", TWO, False),
        ("a == true", Value("a", 1), False),
        ("b == 2", TWO, None),
        ("a == [2]", TWO, None),
        ("a != 2", TWO, None),
        ("a in [1, 2]", TWO, True),
        ("a in [1, 3]", TWO, False),
        ("a in []", TWO, False),
        ("b in [1, 2]", TWO, None),
        ("a between 1 and 3", TWO, None),
        ("a between 2 and 5", WITHIN, True),
        ("a between 1 and 6", WITHIN, True),
        ("a between 3 and 6", WITHIN, None),
        ("a between 1 and 4", WITHIN, None),
        ("a between 'a' and 'z'", WITHIN, None),
        ("a between 'a' and 'z'", BETWEEN, True),
        ("a between 1 and 6", BETWEEN, None),
        ("b between 1 and 6", WITHIN, None),
        ("a == 2", WITHIN, None),
        ("not a == 2", TWO, False),
        ("not a == 3", TWO, True),
        ("not b == 3", TWO, None),
        ("a == 2 and a in [2]", TWO, True),
        ("a == 2 and b == 1", TWO, None),
        ("a == 3 and b == 1", TWO, False),
        ("a == 2 and a == 3", TWO, False),
        ("a == 2 or b == 1", TWO, True),
        ("a == 3 or b == 1", TWO, None),
        ("a == 3 or a == 4", TWO, False),
        ("once a == 2", TWO, None),
        ("per a a == 2", TWO, None),
    ],
)
def test_what_is_known_of_a_fact_decides_some_conditions(
    condition: str, known: Known, expected: bool | None
) -> None:
    assert truth(parse(condition), known) is expected


def test_a_key_with_a_where_that_looks_back_has_slices_of_its_own_for_each_birth() -> None:
    now, back = parse("per k where a == 1 b == 1"), parse("per k where per j not once a == 1 b == 1")
    assert isinstance(now, Keyed)
    assert isinstance(back, Keyed)
    assert now.where is not None
    assert back.where is not None
    assert [step_of(now, birth) for birth in (3, 4)] == [Filter("k", now.where, -1)] * 2
    assert [step_of(back, birth) for birth in (3, 4)] == [Filter("k", back.where, birth) for birth in (3, 4)]
    assert on(("i", FilteredKey("k", back.where)), 5) == ("i", Filter("k", back.where, 5))
    plain = parse("per k b == 1")
    assert isinstance(plain, Keyed)
    assert step_of(plain, 3) == "k"


@pytest.mark.parametrize(
    ("rule", "membership", "birth", "order"),
    [
        (
            "per i per k where a == 1 per j once b == 1",
            "per i a == 1",
            -1,
            ("i", 'k\0-1\0{"leaf":{"fact":"a","op":"eq","value":1}}', "j"),
        ),
        (
            "per k where once a == 1 per j where b == 1 per l once c == 1",
            "per k where once a == 1 b == 1",
            7,
            (
                'k\0007\0{"once":{"leaf":{"fact":"a","op":"eq","value":1}}}',
                'j\0-1\0{"leaf":{"fact":"b","op":"eq","value":1}}',
                "l",
            ),
        ),
    ],
)
def test_which_events_belong_to_the_slices_of_a_filtered_path(
    rule: str, membership: str, birth: int, order: tuple[str, ...]
) -> None:
    path = max((path for _, path in requirements_of(parse(rule), 7).memories), key=len)
    assert is_filtered(path)
    assert membership_of(path) == (parse(membership.replace("per i a == 1", "per i a == 1")), birth)
    assert order_of(path) == order
    assert not is_filtered(("i", "j"))
    assert order_of(("i", "j")) == ("i", "j")
