"""A real cluster whose nodes take no workers: too small ones, and those that operators or Ray drain."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node_deaths import cluster, load, service_on, workers_on
from tests.service_process import Served, environment

WITHIN_S = 60.0
EVENT = {"event": {"fields": {}, "timestamp_ms": 1}}


def until(condition: Callable[[], object], what: str) -> None:
    give_up_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.2)


def refused(service: Served, detector: str) -> str:
    """Evaluate where that must be refused with 1501; return the message."""
    response = service.request("POST", f"/api/detectors/{detector}/evaluate", EVENT)
    (error,) = response.json()["errors"]
    assert error["code"] == 1501, error
    message: str = error["message"]
    return message


@pytest.mark.ray
@pytest.mark.long
def test_no_node_is_large_enough_for_a_worker_and_everyone_is_told(tmp_path):
    with (
        cluster(tmp_path, more=0) as nodes,
        service_on(nodes, tmp_path / "data", "--worker-cpus", "3") as service,
    ):
        detector = service.call("POST", "/api/detectors", {"name": "one"})["id"]
        assert "asks for 3 CPUs" in refused(service, detector)
        assert "no node has room" in service.request("GET", "/readyz").text
        assert "rule_detector_no_room 1" in service.request("GET", "/metrics").text
        # Ray is asked all the same, so its autoscaler would see it.
        status = subprocess.run(
            [Path(sys.executable).with_name("ray"), "status", "--address", nodes.address],
            env=environment(RAY_AUTH_MODE="disabled"),
            capture_output=True,
            text=True,
            check=True,
        )
        assert "{'CPU': 3.0" in status.stdout


@pytest.mark.ray
@pytest.mark.long
def test_all_nodes_are_drained_and_what_is_active_is_served_until_one_is_not(tmp_path):
    with (
        cluster(tmp_path, more=1) as nodes,
        service_on(nodes, tmp_path / "data", "--spares", "0") as service,
        load(service, 2) as callers,
    ):
        idle = service.call("POST", "/api/detectors", {"name": "idle"})["id"]
        for node in nodes.raylets:
            service.call("POST", f"/api/cluster/nodes/{node}/drain")
        assert "0 of 2 nodes take workers" in refused(service, idle)
        callers.all_answer()
        first, _ = nodes.raylets
        service.call("DELETE", f"/api/cluster/nodes/{first}/drain")
        until(lambda: set(workers_on(service)) == {first}, "detectors are left on the drained node")
        service.call("POST", f"/api/detectors/{idle}/evaluate", EVENT)
        callers.end()
        for caller in callers.callers:
            assert set(caller.outcomes) == {"200"}


@pytest.mark.ray
@pytest.mark.long
def test_a_node_that_ray_drains_loses_its_detectors_and_no_request_fails(tmp_path):
    with (
        cluster(tmp_path, more=2) as nodes,
        service_on(nodes, tmp_path / "data") as service,
        load(service, 4) as callers,
    ):
        _, *others = nodes.raylets
        drained = next(node for node in others if workers_on(service).get(node))
        reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test"]
        command = ["drain-node", "--address", nodes.address, "--node-id", drained, *reason]
        subprocess.run(
            [Path(sys.executable).with_name("ray"), *command, "--deadline-remaining-seconds", "120"],
            env=environment(RAY_AUTH_MODE="disabled"),
            check=True,
        )
        until(lambda: drained not in workers_on(service), "detectors are left on the drained node")

        def ended() -> bool:
            shown = service.call("GET", "/api/cluster")["nodes"]
            return not any(node["alive"] for node in shown if node["id"] == drained)

        # Ray's process there waits for the last worker.
        until(ended, "the drained node lives")
        callers.all_answer()
        callers.end()
        for caller in callers.callers:
            assert set(caller.outcomes) == {"200"}
