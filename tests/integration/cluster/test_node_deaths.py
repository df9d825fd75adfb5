"""Nodes that stop, die or return under load: nothing acknowledged is lost, and service soon resumes."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.node_deaths import (
    GIVE_UP_S,
    Load,
    directory_node,
    fullest,
    load,
    move_directory_off_head,
    service_on,
    workers_on,
)
from tests.ray_cluster import RayCluster, ray_cluster

# .ci/run kills and stops workers, the directory and nodes in tests/linearizability.

SPARES = ("--spares", "2")
"""The service's default, used for the figures in api/SIZING.md; other tests have one."""


@pytest.mark.ray
@pytest.mark.long
def test_workers_and_nodes_that_stop_or_die_are_replaced_and_nothing_is_lost(tmp_path):
    data = tmp_path / "data"
    with (
        ray_cluster(tmp_path, nodes=3) as nodes,
        service_on(nodes, data, *SPARES) as service,
        load(service, 9) as callers,
    ):
        took_s = {}

        # One worker is stopped, and continues when its detector is active elsewhere.
        spread = workers_on(service)
        assert len(spread) > 1, "detectors are spread over nodes"
        stopped = next(iter(spread.values()))[0]
        os.kill(stopped, signal.SIGSTOP)
        since_s = time.monotonic()
        took_s["a worker is stopped"] = callers.all_answer(since_s)
        os.kill(stopped, signal.SIGCONT)
        callers.all_answer()

        # All processes of a node are stopped and continued.
        node = fullest(nodes, service, but=directory_node(nodes, data))
        since_s = nodes.signal(node, signal.SIGSTOP)
        took_s["a node is stopped"] = callers.all_answer(since_s)
        nodes.signal(node, signal.SIGCONT)
        callers.all_answer()

        # Another node dies, perhaps with the directory.
        node = fullest(nodes, service, but=node)
        since_s = nodes.signal(node, signal.SIGKILL)
        took_s["a node is killed"] = callers.all_answer(since_s)
        callers.all_answer()

        check_counts(callers)
    for what, all_s in took_s.items():
        print_times(what, all_s)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_node_with_the_directory_and_detectors_is_replaced_and_nothing_is_lost(tmp_path, number):
    data = tmp_path / "data"
    with (
        ray_cluster(tmp_path, nodes=3) as nodes,
        service_on(nodes, data, *SPARES) as service,
        load(service, 9) as callers,
    ):
        # Without the control store, which is on the head, nothing could be started.
        move_directory_off_head(nodes, data)
        callers.all_answer()
        node = directory_node(nodes, data)
        give_up_s = time.monotonic() + GIVE_UP_S
        while node not in workers_on(service):
            # A busy worker may not have answered the new directory yet.
            assert time.monotonic() < give_up_s
        since_s = nodes.signal(node, number)
        took_s = callers.all_answer(since_s)
        if number == signal.SIGSTOP:
            # The stopped directory and its workers find that they have successors.
            nodes.signal(node, signal.SIGCONT)
            callers.all_answer()
            assert directory_after(nodes, data, node) != node
        check_counts(callers)
    print_times(f"{number.name} to the directory's node", took_s)


def directory_after(nodes: RayCluster, data: Path, node: str) -> str:
    """The node of the directory once it differs from the given one. Between two, nobody has the lock."""
    give_up_s = time.monotonic() + GIVE_UP_S
    found = node
    while found == node and time.monotonic() < give_up_s:
        with contextlib.suppress(LookupError):
            found = directory_node(nodes, data)
    return found


def check_counts(callers: Load) -> None:
    """End the callers; check that what was acknowledged is there, and nothing twice."""
    callers.end()
    for caller in callers.callers:
        assert caller.acknowledged <= caller.counted(callers.service) <= caller.sent
        # Only requests in flight may be unknown.
        assert set(caller.outcomes) <= {"200", "1501", "1502"}, caller.outcomes


def print_times(what: str, all_s: list[float]) -> None:
    """Print how long detectors were unavailable. A busy machine takes longer."""
    median_s, longest_s = all_s[len(all_s) // 2], all_s[-1]
    print(f"{what}: detectors answer after {median_s:.1f} s in the middle, {longest_s:.1f} s at most")
