"""A Ray cluster of several nodes on this machine, in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import process_table
from tests.service_process import environment

_CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
for _ in range(int(sys.argv[1]) - 1):
    cluster.add_node(num_cpus=2)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A running cluster on the loopback interface."""

    address: str
    pid: int
    """The pid of the process above all of the node's processes."""


@contextmanager
def ray_cluster(folder: Path, nodes: int = 2, **variables: str) -> Iterator[RayCluster]:
    """Give a cluster, and end it with all its processes. Its log is in the folder."""
    log_path = folder / "cluster.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _CLUSTER, str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(
                RAY_AUTH_MODE="disabled",
                RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1",
                # As the page for operators says: otherwise other programs leave actors no time.
                RAY_worker_niceness="0",
                # Ray then takes most of an hour to notice a stopped process, so it is the service that must.
                RAY_health_check_failure_threshold="1000",
                **variables,
            ),
        )
    assert process.stdout is not None
    address = process.stdout.readline().decode().strip()
    below = process_table.family(process.pid)
    try:
        assert address, log_path.read_text()
        yield RayCluster(address, process.pid)
    finally:
        below |= process_table.family(process.pid)
        process.communicate(b"", timeout=60)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
