"""Which node gets the next worker, and which one gives detectors away."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.runtime.placement.workers.node_choice import (
    Demand,
    NodeLoad,
    giver,
    has_room,
    node_for_worker,
    ranks,
)

DEMAND = Demand(0.1, 100)


def node(name: str, **given: Any) -> NodeLoad:
    return NodeLoad(name, 4.0, 10_000, 4.0, 10_000, 0.0, 0, 0, 0)._replace(**given)


@pytest.mark.parametrize(
    ("fuller", "emptier"),
    [
        ({"cpus_used": 2.0}, {"cpus_used": 1.0}),
        ({"resident_bytes": 5_000}, {"resident_bytes": 3_000}),
        ({"cpus_free": 1.0}, {"cpus_free": 3.0}),
        ({"memory_free_bytes": 1_000}, {"memory_free_bytes": 9_000}),
        # Those that are being started count before Ray knows of them.
        ({"workers": 10}, {"workers": 1}),
        ({"detectors": 2}, {"detectors": 1}),
        # The largest share decides, and a node with more CPUs takes more.
        ({"cpus_used": 2.0, "detectors": 1}, {"detectors": 30}),
        ({"cpus_used": 2.0}, {"resident_bytes": 3_000}),
        ({"cpus_used": 2.0}, {"workers": 4}),
        ({"cpus_used": 2.0}, {"cpus": 40.0, "cpus_free": 40.0, "cpus_used": 3.0}),
        # Less than a tenth of a node apart: the detectors are spread evenly.
        ({"cpus_used": 0.1, "detectors": 9}, {"cpus_used": 0.3, "detectors": 8}),
    ],
)
def test_the_next_worker_goes_to_the_node_with_the_smallest_largest_share(fuller, emptier):
    for names in ("ab", "ba"):
        full, empty = node(names[0], **fuller), node(names[1], **emptier)
        for nodes in ([full, empty], [empty, full]):
            assert node_for_worker(nodes, DEMAND) == empty.id
            assert ranks(nodes, DEMAND)[empty.id] == 0


@pytest.mark.parametrize(
    ("given", "room"),
    [
        ({}, True),
        ({"cpus_free": 0.1}, True),
        ({"cpus_free": 0.05}, False),
        ({"memory_free_bytes": 100}, True),
        ({"memory_free_bytes": 99}, False),
        # A front end's node.
        ({"cpus": 0.0, "cpus_free": 0.0}, False),
        # Ray has not heard of the workers that are being started.
        ({"workers": 39}, True),
        ({"workers": 40}, False),
        ({"memory_bytes": 1_000, "workers": 9}, True),
        ({"memory_bytes": 1_000, "workers": 10}, False),
    ],
)
def test_a_node_without_room_gets_no_worker(given, room):
    assert has_room(node("a", **given), DEMAND) is room
    assert (node_for_worker([node("a", **given)], DEMAND) == "a") is room


def test_workers_that_ask_for_nothing_have_room_everywhere():
    nothing = node("a", cpus=0.0, cpus_free=0.0, memory_bytes=0, memory_free_bytes=0, workers=9)
    assert node_for_worker([nothing], Demand(0.0, 0)) == "a"


@given(st.integers(0, 30), st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1.0, 2.0, 4.0]))
def test_a_new_node_gets_its_share_and_then_nothing_is_moved_to_and_fro(detectors, cpus, more_cpus):
    held = {"old": detectors, "new": 0}
    for _ in range(100):
        nodes = [
            node("old", cpus=cpus, cpus_free=cpus, detectors=held["old"]),
            node("new", cpus=more_cpus, cpus_free=more_cpus, detectors=held["new"]),
        ]
        found = giver(nodes, DEMAND)
        if found is None:
            break
        assert found == "old"
        held["old"] -= 1
        held["new"] += 1
    # One more would make the new node the fuller one.
    assert (held["old"] - 1) / cpus < (held["new"] + 1) / more_cpus


def test_one_node_gives_nothing_away():
    assert giver([], DEMAND) is None
    assert giver([node("a", detectors=9)], DEMAND) is None
