"""Names are looked up as the reference does: at each object by the longest run that is one of its keys."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.facts.look_up import RUNS_PARTS_MAX, field_names, split_name, strings_in, value_of
from tests.reference_values import look_up

PARTS = st.sampled_from(["a", "b", ""])
NAMES = st.lists(PARTS, min_size=1, max_size=5).map(".".join)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, 1, [{"a": 1}]]), lambda inner: st.dictionaries(NAMES, inner, max_size=5)
)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a", 1),
        ("b", {"c": 2, "d": {"e": 3}}),
        ("b.c", 2),
        ("b.d.e", 3),
        ("b.x", None),
        ("b.c.x", None),
        ("x.y", None),
        ("w.h.o", "whole"),
        ("w.h.o.m", "whole, too"),
        ("n", None),
        ("$a", "sent"),
        ("$b.c", "inside"),
        ("$x", None),
        ("k.l.app.io/name", "web"),
        ("k.l.app", {"x": 1}),
        ("k.l.app.x", 1),
        ("k.m.app", "other"),
        ("k.m.x", None),
    ],
)
def test_a_name_follows_the_longest_run_of_its_parts_at_each_object(name: str, found: Any) -> None:
    fields = {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "w": {"h": {"o": "steps"}}, "n": None}
    fields |= {"w.h.o": "whole", "w.h.o.m": "whole, too"}
    # There is no going back from `k.m` to `k`, in which `m.x` would be.
    inside = {"app.io/name": "web", "app": {"x": 1}}
    fields |= {"k": {"l": inside, "m": {"x": 1}}, "k.m": {"app": "other"}}
    assert value_of(split_name(name), fields, {"a": "sent", "b": {"c": "inside"}}) == found
    of_vars, whole, steps, _ = split_name(name)
    assert (of_vars, whole) == (name.startswith("$"), name.removeprefix("$"))
    assert steps == (tuple(whole.split(".")) if "." in name else ())


@given(NAMES, VALUES.filter(lambda value: isinstance(value, dict)))
def test_a_look_up_finds_what_the_reference_finds(name: str, fields: dict[str, Any]) -> None:
    for many in (name, ".".join([name] * 2), ".".join([name] * RUNS_PARTS_MAX)):
        assert value_of(split_name(many), fields, {}) == look_up(many, fields, {})
        deeper = {"a": {many: fields, "a": 1}, "a." + many: {"b": 2}}
        for behind in (f"a.{many}.{name}", f"a.{many}.b", f"a.a.{many}"):
            assert value_of(split_name(behind), deeper, {}) == look_up(behind, deeper, {})


@pytest.mark.parametrize("width", [1, 1_000])
def test_a_name_of_very_many_parts_is_found_among_few_keys_and_among_many(width: int) -> None:
    parts = [f"p{number}" for number in range(5 * RUNS_PARTS_MAX)]
    name = ".".join(parts)
    others = {f"x{number}": 0 for number in range(width)}
    fields = {"p0": others, "p0.p1": others | {".".join(parts[2:9]): others | {".".join(parts[9:]): 1}}}
    assert value_of(split_name(name), fields, {}) == look_up(name, fields, {}) == 1
    assert value_of(split_name(f"{name}.x"), fields, {}) is look_up(f"{name}.x", fields, {}) is None


def test_the_fields_that_may_hold_a_fact_are_the_beginnings_of_its_name() -> None:
    assert field_names("a") == ("a",)
    assert field_names("a.b..c") == ("a", "a.b", "a.b.", "a.b..c")


def test_the_strings_of_an_event_have_their_order_however_deep_they_are() -> None:
    fields = {"a": "one", "b": {"two": "two", "c": [3, "three", ["four"]]}, "d": None, "e": "five"}
    assert strings_in(fields) == ["one", "two", "three", "four", "five"]
