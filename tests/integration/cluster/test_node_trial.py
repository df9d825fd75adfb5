"""Nodes of a cluster that see a data folder late, or not at all, are found before a service starts on it."""

import subprocess
import sys
from pathlib import Path

import pytest

TRIAL = """
import sys
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from engine.runtime.cluster import node_checks, ray_nodes
from snapshots.data_folder.identity import begin_folder
from snapshots.data_folder.trial import Seen
from snapshots.errors import UnsafeFolder

data = Path(sys.argv[1])
# A busy machine takes long to start a process on the other node.
ray_nodes.ask_node.__defaults__ = (300.0,)
folder_id = begin_folder(data)
before = sorted(data.iterdir())
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
try:
    other = nodes.add_node(num_cpus=0)
    nodes.wait_for_nodes()
    print(node_checks.try_nodes(data, folder_id))
    node_checks.look = lambda folder, create: Seen([], None, locked=False)
    try:
        node_checks.try_nodes(data, folder_id)
    except UnsafeFolder as error:
        print(error)
    print(node_checks.try_nodes(data, "another"))

    def broken(folder, create):
        raise RuntimeError("it broke")

    node_checks.look = broken
    print(*node_checks.try_nodes(data, folder_id))
    print(sorted(data.iterdir()) == before)
finally:
    ray.shutdown()
    nodes.shutdown()
"""


@pytest.mark.ray
def test_each_node_that_has_the_folder_is_tried(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-c", TRIAL, str(data)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stderr
    whole, blind, without, failed, left = run.stdout.splitlines()
    assert whole == without == "[]"
    assert f"{data} cannot be used, because its file system fails to show changes at once: the node " in blind
    assert "does not see a new file" in blind
    assert "is not tried with the node" in failed
    assert "it broke" in failed
    assert left == "True"
