"""What is decided beforehand by a fact that is known."""

import pytest

from engine import parse
from engine.evaluation.kernel.selection.triggers import Known, Value, Within, truth

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
