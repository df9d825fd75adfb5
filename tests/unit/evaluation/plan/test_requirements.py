"""What conditions require, and what the state is told about the memory of each temporal node."""

import pytest

from engine import parse
from engine.evaluation.times import Kind, Recorded, Sharing
from engine.evaluation.paths import Filter
from engine.evaluation.requirements import (
    RULE_STAGE,
    TRAITS,
    operands_of,
    operator_of,
    path_depth,
    requirements_of,
    size_of,
    temporal_depth,
    update_stage,
)

S = 1_000_000
VIEWED, EXPIRED, SETTLED, NEVER = Sharing.VIEWED, Sharing.EXPIRED, Sharing.SETTLED, Sharing.NEVER


def test_a_condition_requires_what_each_of_its_nodes_does() -> None:
    node = parse(
        "r(a, 1) and (s(b) or a matches 'x' and b matches 'y') and c contains 'z' and c contains '' "
        "and per k where once a == 1 (per j once within 1s b == 1)"
    )
    inner, outer = parse("once within 1s b == 1"), parse("once a == 1")
    found = requirements_of(node, 7, ("i",))
    assert found.relations == {"r", "s"}
    assert found.patterns == {("a", "x"), ("b", "y")}
    assert found.literals == {("c", "z")}
    assert sorted(found.memories, key=repr) == sorted(
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
    assert size_of(parse(node)) == size


def test_an_update_comes_after_those_that_it_reads_and_a_deferred_one_after_the_rules() -> None:
    path = ("i", Filter("k", parse("once once a == 1"), 0), "j", Filter("l", parse("a == 1"), -1))
    assert path_depth(path) == 2
    once, previous = parse("once once a == 1"), parse("previous once a == 1")
    assert [update_stage(once, ()), update_stage(once, path)] == [2, 4]
    assert [update_stage(previous, ()), update_stage(previous, path)] == [
        2 * RULE_STAGE - 2,
        2 * RULE_STAGE - 4,
    ]
    assert update_stage(once, path) < RULE_STAGE < update_stage(previous, path)


@pytest.mark.parametrize(
    ("node", "name", "operands"),
    [
        ("once a == 1", "once", {"inner": "a == 1"}),
        ("historically a == 1", "historically", {"inner": "a == 1"}),
        ("a == 1 since b == 1", "since", {"left": "a == 1", "right": "b == 1"}),
        ("once within 1s a == 1", "once_within", {"inner": "a == 1"}),
        ("historically for 1s a == 1", "historically_for_weak", {"inner": "a == 1"}),
        ("historically for 1s strong a == 1", "historically_for_strong", {"inner": "a == 1"}),
        ("a == 1 since within 1s b == 1", "since_within", {"left": "a == 1", "right": "b == 1"}),
        ("previous a == 1", "previous", {"inner": "a == 1"}),
        ("earlier a == 1", "earlier", {"inner": "a == 1"}),
        ("earlier within 1s a == 1", "earlier_within", {"inner": "a == 1"}),
    ],
)
def test_each_temporal_node_has_an_operator_and_its_operands(
    node: str, name: str, operands: dict[str, str]
) -> None:
    operator = operator_of(parse(node))
    assert operator is not None
    assert operator.name == name
    assert operands_of(parse(node)) == {place: parse(text) for place, text in operands.items()}
    assert operator_of(parse("count(a == 1) > 1")) is operator_of(parse("a == 1")) is None


@pytest.mark.parametrize(
    ("node", "expiry_us", "run_us", "sharing", "settling_us"),
    [
        ("once a == 1", None, None, VIEWED, 0),
        ("once within 1s a == 1", S, None, VIEWED, 0),
        ("historically a == 1", None, None, VIEWED, 0),
        ("historically for 1s a == 1", S, None, VIEWED, 0),
        ("historically for 1s strong a == 1", None, S, VIEWED, 0),
        ("historically for 0s strong a == 1", -1, 0, VIEWED, 0),
        ("historically for 0s a == 1", 0, None, VIEWED, 0),
        ("a == 1 since b == 1", None, None, VIEWED, 0),
        ("a == 1 since within 1s b == 1", S, None, VIEWED, 0),
        ("previous a == 1", None, None, VIEWED, 0),
        ("earlier a == 1", None, None, VIEWED, 0),
        ("earlier within 1s a == 1", S, None, VIEWED, 0),
        ("count(a == 1) within 1s > 3", S, None, VIEWED, 0),
        ("distinct(a) > 3", None, None, VIEWED, 0),
        # The oldest pane counts whole.
        ("sum(a) within 256ms > 3", 257_000, None, EXPIRED, 0),
        ("avg(a) within 0s > 3", 1, None, EXPIRED, 0),
        ("avg(a) > 3", None, None, EXPIRED, 0),
        ("once once a == 1", None, None, NEVER, None),
        ("once once within 1s a == 1", None, None, NEVER, S),
        ("once within 5s once within 1s a == 1", 5 * S, None, SETTLED, S),
        ("once within 5s once within 1s once within 2s a == 1", 5 * S, None, SETTLED, 3 * S),
        ("once within 5s (once within 1s a == 1 and once within 2s b == 1)", 5 * S, None, SETTLED, 2 * S),
        ("once within 5s (once within 1s a == 1 or once b == 1)", 5 * S, None, NEVER, None),
        ("once within 5s historically for 1s strong a == 1", 5 * S, None, NEVER, None),
        ("once within 5s historically for 0s strong a == 1", 5 * S, None, NEVER, None),
        ("sum(a where once within 1s b == 1) within 256ms > 3", 257_000, None, SETTLED, S),
        ("once within 5s (per k where a == 1 once within 1s b == 1)", 5 * S, None, SETTLED, S),
        ("once within 5s (per k once within 1s b == 1)", 5 * S, None, SETTLED, S),
        ("once within 5s (per k where once within 1s a == 1 b == 1)", 5 * S, None, NEVER, None),
    ],
)
def test_when_a_memory_expires_and_when_rules_of_several_births_can_share_it(
    node: str, expiry_us: int | None, run_us: int | None, sharing: Sharing, settling_us: int | None
) -> None:
    condition = parse(node)
    assert TRAITS.expiry_of(condition) == expiry_us
    assert TRAITS.run_us_of(condition) == run_us
    assert TRAITS.sharing_of(condition) is sharing
    assert TRAITS.settling_us_of(condition) == settling_us


def test_the_memories_inside_a_node_are_those_that_it_requires_besides_its_own() -> None:
    node = parse("once within 5s (once a == 1 and per k once b == 1)")
    assert TRAITS.inner_of(node, ("i",), 3) == (
        (parse("once a == 1"), ("i",)),
        (parse("once b == 1"), ("i", "k")),
    )


@pytest.mark.parametrize(
    ("node", "recorded"),
    [
        ("count(a == 1) >= 3", Recorded(Kind.TIMES, 3, None, 3)),
        ("count(a == 1) within 1s > 3", Recorded(Kind.TIMES, 4, S, 4)),
        ("count(a == 1) == 3", Recorded(Kind.TIMES, 4, None, 3)),
        ("count(a == 1) != 3", Recorded(Kind.TIMES, 4, None, 1)),
        ("count(a == 1) < 3", Recorded(Kind.TIMES, 3, None, 1)),
        ("count(a == 1) <= 3", Recorded(Kind.TIMES, 4, None, 1)),
        ("count(a == 1) >= 0", Recorded(Kind.TIMES, 1, None, 1)),
        ("count(a == 1) > 0", Recorded(Kind.TIMES, 1, None, 1)),
        ("count(a == 1) == 0", Recorded(Kind.TIMES, 1, None, 1)),
        ("distinct(a) within 1s >= 3", Recorded(Kind.VALUES, 3, S, 3)),
        ("sum(a) within 1s >= 3", Recorded(Kind.SUMS, 0, S, 1)),
        ("avg(a) >= 3", Recorded(Kind.MEANS, 0, None, 1)),
        ("once a == 1", None),
    ],
)
def test_what_records_hold(node: str, recorded: Recorded | None) -> None:
    assert TRAITS.recorded_of(parse(node)) == recorded
