"""Names that lead to a value are found whichever side is the larger, exactly as one by one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.facts.names import Names
from engine.evaluation.facts.values import split_name, value_of

PARTS = st.sampled_from(["a", "b", "c", ""])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map(".".join)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, 1, "x", [{"a": 1}]]), lambda inner: st.dictionaries(NAMES, inner, max_size=4)
)


@given(st.sets(NAMES, max_size=12), st.sets(NAMES), st.dictionaries(NAMES, VALUES, max_size=6))
def test_each_name_leads_where_it_would_alone(
    names: set[str], removed: set[str], fields: dict[str, Any]
) -> None:
    many: Names[str] = Names()
    for name in sorted(names | removed):
        many.add(split_name(name), name)
    for name in removed:
        many.remove(split_name(name))
    left = names - removed
    found = list(many.found_in(fields))
    expected = {name: value_of(split_name(name), fields, {}) for name in left}
    assert len(found) == len(dict(found)), "each is given once"
    assert dict(found) == {name: value for name, value in expected.items() if value is not None}


class _Counting(dict[str, Any]):
    """A mapping that counts how often it is asked."""

    asked = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(name, default)


@pytest.mark.parametrize("prefix", ["", "a.b."])
def test_an_event_of_few_fields_is_not_asked_for_every_name(prefix: str) -> None:
    many: Names[int] = Names()
    for number in range(1_000):
        many.add(split_name(f"{prefix}x{number}"), number)
    fields = _Counting({"x7": 1, "a": 2})
    assert [number for number, _ in many.found_in(fields)] == ([] if prefix else [7])
    assert fields.asked == 0
