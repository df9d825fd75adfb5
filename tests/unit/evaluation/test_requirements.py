"""What conditions require of their detector, how large and deep they are, and how far they look back."""

import pytest

from engine import parse
from engine.evaluation.paths import Filter
from engine.evaluation.requirements import (
    Births,
    lookback_us,
    path_depth,
    requirements_of,
    temporal_depth,
)

S = 1_000_000


def test_a_condition_requires_what_each_of_its_nodes_does() -> None:
    node = parse(
        "r(a, 1) and (s(b) or a matches 'x+' and b matches '^y$') and c contains 'z' and c contains '' "
        "and per k where once a == 1 (per j once within 1s b == 1)"
    )
    inner, outer = parse("once within 1s b == 1"), parse("once a == 1")
    found = requirements_of(node, Births(7), ("i",))
    assert found.relations == {"r", "s"}
    assert found.patterns == {("a", "x+")}
    assert found.text_tests == {("b", "^y$")}
    assert found.literals == {("c", "z")}
    assert sorted([(use.node, use.path) for use in found.memories], key=repr) == sorted(
        [(inner, ("i", Filter("k", outer, 7), "j")), (outer, ("i",))], key=repr
    )
    assert found.size == 15


@pytest.mark.parametrize(
    ("node", "depth", "size"),
    [
        ("once a == 1", 1, 2),
        ("once (a == 1 and b == 1)", 1, 4),
        ("once (a == 1 and once b == 1)", 2, 3),
        ("once (once a == 1 and once once b == 1)", 3, 2),
        ("a == 1 since (b == 1 or c == 1)", 1, 5),
        ("count(once a == 1) > 1", 2, 1),
        ("once (per k where once a == 1 once once b == 1)", 4, 2),
        ("once (per k where a == 1 once b == 1)", 2, 3),
    ],
)
def test_how_deep_and_how_large_a_temporal_node_is(node: str, depth: int, size: int) -> None:
    assert temporal_depth(parse(node)) == depth
    assert requirements_of(parse(node)).memories[0].nodes == size


def test_the_slices_of_a_path_are_known_after_the_memories_that_its_filters_read() -> None:
    path = ("i", Filter("k", parse("once once a == 1"), 0), "j", Filter("l", parse("a == 1"), -1))
    assert path_depth(path) == 2


@pytest.mark.parametrize(
    ("node", "lookback"),
    [
        ("a == 1", 0),
        ("once a == 1", None),
        ("once within 1s a == 1", S),
        ("previous a == 1", None),
        ("historically for 1s a == 1", S),
        ("historically for 1s strong a == 1", None),
        ("historically for 0s strong a == 1", 0),
        ("a == 1 since within 1s b == 1", S),
        ("count(a == 1) within 1s > 3", S),
        # The oldest pane counts whole.
        ("sum(a) within 256ms > 3", 257_000),
        ("avg(a) within 0s > 3", 1),
        ("once within 5s once within 1s a == 1", 6 * S),
        ("once within 5s (once within 1s a == 1 or once b == 1)", None),
        ("once within 5s a == 1 or once within 2s b == 1", 5 * S),
        ("once within 5s (per k where once within 1s a == 1 once within 2s b == 1)", 8 * S),
    ],
)
def test_how_far_back_events_can_matter(node: str, lookback: int | None) -> None:
    assert lookback_us(parse(node)) == lookback
