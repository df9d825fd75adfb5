"""A Ray cluster on this machine, in a process of its own. Its nodes start, end, stop and die."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import process_table
from tests.service_process import environment

_CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster
count, head_cpus, cpus = map(int, sys.argv[1:])
head = {"num_cpus": head_cpus, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
started = [cluster.head_node, *(cluster.add_node(num_cpus=cpus) for _ in range(count - 1))]
nodes = {node.node_id: node for node in started}
raylets = {name: node.all_processes["raylet"][0].process.pid for name, node in nodes.items()}
print(json.dumps([cluster.address, raylets]), flush=True)
for line in sys.stdin:
    what, given = line.split()
    if what == "add":
        node = cluster.add_node(num_cpus=cpus, env_vars={"PYTHONPATH": given})
        nodes[node.node_id] = node
        given = node.node_id
    elif what == "remove":
        cluster.remove_node(nodes.pop(given))
    elif what == "kill":
        cluster.head_node.kill_gcs_server()
    else:
        cluster.head_node.start_gcs_server()
    print(given, flush=True)
cluster.shutdown()
"""

_RAY = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
    # As the page for operators says: otherwise other programs leave actors no time.
    "RAY_worker_niceness": "0",
    # With this, Ray takes most of an hour to notice a stopped process, so the service must notice it.
    "RAY_health_check_failure_threshold": "1000",
}


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A running cluster on the loopback interface; the first node is the head."""

    address: str
    process: "subprocess.Popen[bytes]"
    """The parent of all processes of the nodes."""
    raylets: dict[str, int]
    """The pid of each first node's raylet, by the node's id."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def add(self, package: Path) -> str:
        """Start a node whose processes import from a folder first. Return its id."""
        return self._ask(f"add {package}")

    def remove(self, node: str) -> None:
        """End a node that was added."""
        self._ask(f"remove {node}")

    def kill_control_store(self) -> None:
        self._ask("kill it")

    def start_control_store(self) -> None:
        self._ask("start it")

    def signal(self, node: str, number: signal.Signals) -> float:
        """Send a signal to all processes of a node, and return when they have received it."""
        for pid in process_table.family(self.raylets[node]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return time.monotonic()

    def _ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().strip()


@contextmanager
def ray_cluster(
    folder: Path, nodes: int = 2, *, head_cpus: int | None = None, cpus: int = 2, **variables: str
) -> Iterator[RayCluster]:
    """Give a cluster, and end it with all its processes. Its log is in the folder.

    Each node has as many CPUs, the head others if that is said.
    """
    log_path = folder / "cluster.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _CLUSTER,
                str(nodes),
                str(cpus if head_cpus is None else head_cpus),
                str(cpus),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(**{**_RAY, **variables}),
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    below = process_table.family(process.pid)
    try:
        assert line, log_path.read_text()
        address, raylets = json.loads(line)
        yield RayCluster(address, process, raylets)
    finally:
        below |= process_table.family(process.pid)
        for pid in below - {process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        try:
            process.communicate(b"", timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
