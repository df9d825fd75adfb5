"""Ray's autoscaler starts nodes for workers without room, and removes those whose workers have ended."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node_deaths import TOKEN
from tests.process_table import family
from tests.service_process import Process, Served, environment, served, until

WITHIN_S: Final = 180.0
OWN_ADDRESS: Final = "from ray._private.services import get_node_ip_address; print(get_node_ip_address())"
EMPTY: Final = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
)
"""What Ray's autoscaler reads of any configuration, unused by the fake provider."""
RULE: Final = {"name": "all", "condition": "count(n > 0) >= 1"}


def configuration(address: str) -> dict[str, Any]:
    """Nodes with room for one worker each, and a head without."""
    return {
        "cluster_name": "fake",
        "max_workers": 4,
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        "provider": {
            "type": "external",
            "module": "tests.integration.ray.fake_nodes.FakeNodes",
            "gcs_address": address,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {"CPU": 1, "memory": 2**30, "object_store_memory": 10**8},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 4,
            },
        },
        "auth": {},
        "file_mounts": {},
        **{name: [] for name in EMPTY},
    }


@contextmanager
def autoscaled(folder: Path) -> Iterator[str]:
    """Yield the address of a cluster that grows and shrinks by itself."""
    own = subprocess.run([sys.executable, "-c", OWN_ADDRESS], capture_output=True, text=True, check=True)
    with socket.create_server((own.stdout.strip(), 0)) as free:
        host, port = free.getsockname()
    address = f"{host}:{port}"
    (folder / "autoscaler.json").write_text(json.dumps(configuration(address)), "ascii")
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port", str(port)]
    small = ["--num-cpus", "0", "--object-store-memory", "80000000", "--include-dashboard", "false"]
    scaled = ["--autoscaling-config", str(folder / "autoscaler.json"), "--disable-usage-stats"]
    log = folder / "ray.log"
    # A path of a Unix socket has no more than 107 characters.
    with tempfile.TemporaryDirectory(prefix="rda", dir="/tmp") as temporary, log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "--temp-dir", temporary, *small, *scaled],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment(
                RAY_AUTH_MODE="disabled",
                RAY_worker_niceness="0",
                RAY_TMPDIR=temporary,
                RAY_FAKE_CLUSTER="1",
                PYTHONPATH=str(Path(__file__).parents[3]),
                AUTOSCALER_UPDATE_INTERVAL_S="1",
            ),
            start_new_session=True,
        )
        try:
            Process(process, log).wait_for("Ray runtime started")
            yield address
        finally:
            below = family(process.pid)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            for pid in below | family(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def grown(service: Served) -> list[str]:
    """The nodes that the autoscaler has started and not removed."""
    shown = service.call("GET", "/api/cluster")["nodes"]
    return [node["id"] for node in shown if node["alive"] and node["cpus"]]


def answered(service: Served, detector: str) -> list[str]:
    """Evaluate an event as soon as there is room; return the names of the rules that fire."""
    event = {"event": {"fields": {"n": 1}, "timestamp_ms": 1}}
    replies: list[Any] = []

    def evaluated() -> bool:
        reply = service.request("POST", f"/api/detectors/{detector}/evaluate", event).json()
        codes = {error["code"] for error in reply["errors"]}
        assert codes <= {1501}, reply
        replies.append(reply)
        return not codes

    until(evaluated, "no node is started", WITHIN_S)
    return [action["name"] for action in replies[-1]["result"]["actions"]]


@pytest.mark.ray
@pytest.mark.long
def test_nodes_are_started_for_detectors_and_removed_after_them(tmp_path):
    options = ("--worker-cpus", "1", "--spares", "0", "--passivate-after-s", "10")
    settings = {"RULE_DETECTOR_BOOTSTRAP_TOKEN": TOKEN, "RAY_AUTH_MODE": "disabled"}
    with (
        autoscaled(tmp_path) as address,
        served(tmp_path / "data", "--ray-address", address, *options, **settings) as service,
    ):
        service.token = TOKEN
        assert grown(service) == []
        ids = [service.call("POST", "/api/detectors", {"name": f"{n}"})["id"] for n in range(2)]

        def both_active() -> bool:
            for detector in ids:
                assert answered(service, detector) == []
            return len(grown(service)) == len(ids)

        until(both_active, "there is no second node for the second detector", WITHIN_S)
        for detector in ids:
            service.call("POST", f"/api/detectors/{detector}/rules", RULE)
            assert answered(service, detector) == ["all"]
        # One worker is kept for the next detector, and so is its node.
        until(lambda: len(grown(service)) < len(ids), "no node is removed", WITHIN_S)
        for detector in ids:
            assert answered(service, detector) == ["all"]
