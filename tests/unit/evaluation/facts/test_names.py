"""Names that lead to a value are found whichever side is the larger, exactly as one by one."""

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.facts.look_up import RUNS_PARTS_MAX, split_name, value_of
from engine.evaluation.facts.names import FactNames, Names

PARTS = st.sampled_from(["a", "b", "c", ""])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map(".".join)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, 1, "x", [{"a": 1}]]), lambda inner: st.dictionaries(NAMES, inner, max_size=4)
)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"a": 1}),
        ({"a": None, "b": {"c": None}}, {}),
        ({"b": {"c": 1}}, {"b.c": 1}),
        ({"b": {"c": {"d": 1}}}, {"b.c": {"d": 1}, "b.c.d": 1}),
        ({"b": {"c": {"d": {"e": 1}}}}, {"b.c": {"d": {"e": 1}}, "b.c.d": {"e": 1}}),
        ({"b": 7}, {}),
        ({"b": "c"}, {}),
        ({"b": ["c"]}, {}),
        # The whole name takes precedence, even if it leads to null.
        ({"b.c": 1, "b": {"c": {"d": 2}}}, {"b.c": 1}),
        ({"b.c": None, "b": {"c": {"d": 2}}}, {}),
        # So does a longer run of the parts.
        ({"b.c": {"d": 3}, "b": {"c": {"d": 2}, "c.d": 1}}, {"b.c": {"d": 3}, "b.c.d": 3}),
        ({"b": {"c": {"d": 2}, "c.d": 1}}, {"b.c": {"d": 2}, "b.c.d": 1}),
        ({"b": {"c": {"d": 2}, "c.d": None}}, {"b.c": {"d": 2}}),
        ({"b.c.d": None, "b": {"c": {"d": 2}}}, {"b.c": {"d": 2}}),
    ],
)
def test_a_name_leads_through_objects_unless_a_field_has_the_whole_name(
    fields: dict[str, Any], found: dict[str, Any]
) -> None:
    many: Names[str] = Names()
    for name in ("a", "b.c", "b.c.d"):
        many.add(split_name(name), name)
    assert dict(many.found_in(fields)) == found
    padded = fields | {f"z{number}": number for number in range(9)}
    assert dict(many.found_in(padded)) == found


def test_nothing_is_kept_of_names_that_are_gone() -> None:
    many: Names[str] = Names()
    many.add(split_name("b.x"), "kept")
    before = pickle.dumps(many)
    far = ".".join(["e"] * (RUNS_PARTS_MAX + 1))
    for name in ("a", "b.c", "b.c.d", "e.f.g", far):
        many.add(split_name(name), name)
    for name in ("b.c", "b.c.d", "a", "e.f.g", far):
        many.remove(split_name(name))
    assert pickle.dumps(many) == before


def test_a_fact_is_found_in_the_fields_or_in_the_vars() -> None:
    facts: FactNames[int] = FactNames()
    for number, fact in enumerate(["a", "$a", "b.c", "$b.c"]):
        facts.add(fact, number)
    fields, sent = {"a": "x", "b": {"c": "y"}}, {"a": "z", "b.c": "w"}
    assert facts.found_in(fields, sent) == [(0, "x"), (2, "y"), (1, "z"), (3, "w")]
    assert facts.found_in(fields, {}) == [(0, "x"), (2, "y")]
    facts.remove("$a")
    facts.remove("b.c")
    assert facts.found_in(fields, sent) == [(0, "x"), (3, "w")]


@given(st.sets(NAMES, max_size=12), st.sets(NAMES), st.dictionaries(NAMES, VALUES, max_size=6))
def test_each_name_leads_where_it_would_alone(
    names: set[str], removed: set[str], fields: dict[str, Any]
) -> None:
    names |= {".".join([name] * RUNS_PARTS_MAX) for name in [*names][:2]}
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
    """A mapping that counts how often it is asked, and how often it is gone through."""

    asked = 0
    gone_through = 0

    def get(self, name: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(name, default)

    def items(self) -> Any:
        self.gone_through += 1
        return super().items()


@pytest.mark.parametrize("prefix", ["", "a.b."])
def test_an_event_of_few_fields_is_not_asked_for_every_name(prefix: str) -> None:
    many: Names[int] = Names()
    for number in range(1_000):
        many.add(split_name(f"{prefix}x{number}"), number)
    fields = _Counting({"x7": 1, "a": 2})
    assert [number for number, _ in many.found_in(fields)] == ([] if prefix else [7])
    assert fields.asked <= 1, "at most for the step that all names share"


@pytest.mark.parametrize("prefix", ["", "a.b."])
def test_an_event_of_many_fields_is_not_gone_through_for_few_names(prefix: str) -> None:
    many: Names[int] = Names()
    for number in range(2):
        many.add(split_name(f"{prefix}x{number}"), number)
    fields = _Counting({f"{prefix}x{number}": number for number in range(1, 1_000)})
    assert many.found_in(fields) == [(1, 1)]
    assert fields.gone_through == 0
