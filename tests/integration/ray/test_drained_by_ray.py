"""A node of a real cluster that Ray drains."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.node_deaths import load, service_on, workers_on
from tests.ray_cluster import ray_cluster
from tests.service_process import environment, until


@pytest.mark.ray
@pytest.mark.long
def test_a_node_that_ray_drains_loses_its_detectors_and_no_request_fails(tmp_path):
    with (
        ray_cluster(tmp_path, nodes=3) as nodes,
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
