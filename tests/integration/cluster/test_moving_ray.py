"""Detectors on two nodes of a Ray cluster that move, and nodes that are drained, under load."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.integration.cluster.test_services_share import (
    TOKEN,
    Callers,
    cluster,
    directory_pid,
    events_evaluated,
)
from tests.service_process import Served, program, served

# .ci/run moves detectors and drains nodes in tests/linearizability.

__all__ = ["cluster"]


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait until something holds."""
    give_up_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.2)


def places(service: Served) -> dict[str, str]:
    """The node of each detector that is active; none while the directory itself is on its way."""
    response = service.request("GET", "/api/cluster")
    if response.status_code == 503:
        return {}
    return {
        detector["id"]: worker["node"]
        for worker in response.json()["result"]["workers"]
        for detector in worker.get("detectors", [])
    }


@pytest.mark.ray
@pytest.mark.long
def test_detectors_move_and_nodes_are_drained_under_load_and_nothing_is_lost(cluster, tmp_path):
    data = tmp_path / "data"
    with ExitStack() as stack:
        more = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled"}
        service = stack.enter_context(served(data, "--ray-address", cluster, "--worker-cpus", "0.25", **more))
        service.token = TOKEN
        ids = [service.call("POST", "/api/detectors", {"name": f"d{n}"})["id"] for n in range(4)]
        for each in ids:
            rule = {"name": "many", "condition": "distinct(n) > 9999"}
            service.call("POST", f"/api/detectors/{each}/rules", rule)
        shown = service.call("GET", "/api/cluster")
        nodes = [node["id"] for node in shown["nodes"] if node["alive"] and node["cpus"]]
        assert len(nodes) == 2
        callers = [Callers(each) for each in ids]
        try:
            for each in callers:
                for name in ("one", "two"):
                    each.call(service, name)
            for each in callers:
                each.until(20)
            # Each has its own worker, and they spread over the nodes.
            until(lambda: Counter(places(service).values()) == dict.fromkeys(nodes, 2), "they are not spread")
            moved_s = []
            for number in range(4):
                began_s = time.monotonic()
                to = nodes[number % 2]
                moved = service.call("POST", f"/api/detectors/{ids[0]}/move", {"node": to})
                moved_s.append(time.monotonic() - began_s)
                assert moved["node"] == to
                until(lambda there=to: places(service).get(ids[0]) == there, "it is not shown there")
                callers[0].until(20)
            drained_s = []
            for node, other in ((nodes[0], nodes[1]), (nodes[1], nodes[0])):
                before = directory_pid(data)
                began_s = time.monotonic()
                run = program("drain", node, "--url", service.url, "--token", TOKEN)
                assert run.returncode == 0, run.stdout + run.stderr
                drained_s.append(time.monotonic() - began_s)
                until(lambda to=other: set(places(service).values()) == {to}, "a detector is left")
                for each in callers:
                    each.until(20)
                print(run.stdout, before, directory_pid(data))
                service.call("DELETE", f"/api/cluster/nodes/{node}/drain")
        finally:
            for each in callers:
                each.end()
        for each in callers:
            assert set(each.outcomes) == {"one 200", "two 200"}, each.outcomes
            evaluated = events_evaluated(service, each.detector)
            assert len(each.acknowledged) <= evaluated <= each.sent
        gaps_s = [max(each.gaps_s) for each in callers]
        assert service.end() == 0
    print(f"moved in {moved_s} s, drained in {drained_s} s, longest waits for an answer {gaps_s} s")
