"""Which busy detector leaves a full node, when, and that none is moved back and forth."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.placement.workers.node_choice import Demand, NodeLoad
from engine.runtime.placement.workers.relief import Move, Relief, relief

DEMAND = Demand(0.1, 100)
MB = 10_000


def node(name: str, used: float, cpus: float = 4.0, cpus_free: float = 4.0) -> NodeLoad:
    return NodeLoad(name, cpus, MB, cpus_free, MB, used, 0, 0, 0)


@pytest.mark.parametrize(
    ("others", "cpus_used", "move"),
    [
        # The busiest, to the node where workers use the smallest share.
        ([node("b", 1.2), node("c", 1.0)], {"small": 0.9, "large": 1.4}, Move("large", "full", "c")),
        # Of two that are equally busy, the first one by its id.
        ([node("b", 1.0)], {"two": 1.4, "one": 1.4}, Move("one", "full", "b")),
        # What would fill the other node stays; the next one goes.
        ([node("b", 2.0)], {"small": 0.6, "large": 3.0}, Move("small", "full", "b")),
        # Nobody has room, or what is left is not worth a move.
        ([node("b", 2.5)], {"small": 0.6, "large": 3.0}, None),
        ([node("b", 0.0, cpus_free=0.05)], {"large": 1.0}, None),
        ([node("b", 0.0, cpus=0.0, cpus_free=0.0)], {"large": 1.0}, None),
        ([node("b", 0.0, cpus_free=0.3)], {"large": 1.0}, None),
        ([node("b", 0.0)], {"idle": 0.079}, None),
        ([node("b", 0.0)], {}, None),
        ([], {"large": 1.0}, None),
    ],
)
def test_the_busiest_detector_for_which_there_is_room_leaves_a_full_node(
    others: list[NodeLoad], cpus_used: dict[str, float], move: Move | None
) -> None:
    nodes = [node("full", 3.8), *others]
    assert relief(nodes, DEMAND, {"full": cpus_used}) == move
    assert relief(nodes[::-1], DEMAND, {"full": cpus_used}) == move


def test_a_node_that_is_not_full_gives_nothing_away() -> None:
    assert relief([node("a", 3.5), node("b", 0.0)], DEMAND, {"a": {"large": 1.0}}) is None


def test_a_node_is_full_a_detector_busy_and_another_node_free_up_to_the_very_bounds() -> None:
    cpus_used = {"a": {"large": 4.0}, "b": {"small": 0.2}}
    full = [node("a", 9.0, 10.0), node("b", 9.5, 10.0)]
    to = node("c", 3.0, 10.0)
    assert relief([full[0], to], DEMAND, cpus_used) == Move("large", "a", "c")
    # The fuller node comes first, although its detector uses less.
    assert relief([*full, to], DEMAND, cpus_used) == Move("small", "b", "c")


def test_three_measurements_in_a_row_must_agree_and_after_a_move_again() -> None:
    counted, move, other = Relief(), Move("one", "a", "b"), Move("one", "c", "b")
    assert not counted.count(None)
    for _ in range(2):
        assert [counted.count(move) for _ in range(3)] == [False, False, True]
    # A measurement that finds another node full, or none, begins the count anew.
    for interruption in (None, other):
        assert not any(counted.count(move) for _ in range(2))
        assert not counted.count(interruption)
    assert not counted.count(move)


def measured(wanted: Mapping[str, float], cpus: float) -> dict[str, float]:
    """What detectors that want so much CPU get on a node."""
    share = min(1.0, cpus / max(sum(wanted.values()), 0.01))
    return {name: want * share for name, want in wanted.items()}


@given(
    st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 3.0)), max_size=16),
)
def test_whatever_detectors_use_the_moves_come_to_an_end(
    sizes: list[float], loads: list[tuple[int, float]]
) -> None:
    names = "abcd"[: len(sizes)]
    cpus = dict(zip(names, sizes, strict=True))
    wanted: dict[str, dict[str, float]] = {name: {} for name in names}
    for number, (at, want) in enumerate(loads):
        wanted[names[at % len(names)]][f"d{number}"] = want
    moves = 0
    while True:
        used = {name: measured(wanted[name], cpus[name]) for name in names}
        nodes = [node(name, sum(used[name].values()), cpus[name], cpus[name]) for name in names]
        move = relief(nodes, DEMAND, used)
        if move is None:
            break
        wanted[move.to][move.detector_id] = wanted[move.node].pop(move.detector_id)
        moves += 1
        assert moves <= 4 * len(loads)
