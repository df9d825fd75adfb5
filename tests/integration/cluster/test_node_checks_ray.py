"""Before a service starts: nodes of other versions, and nodes that see the data folder late or never."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.runtime.contract.build import SPOKEN

ROOT = Path(__file__).parents[3]

CHECKS = """
import sys
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from engine.runtime.cluster import node_checks, ray_nodes
from snapshots.data_folder.identity import begin_folder
from snapshots.data_folder.trial import Seen
from snapshots.errors import UnsafeFolder

data, neighbour, far = map(Path, sys.argv[1:])
# A busy machine takes long to start a process on another node.
ray_nodes.ANSWER_S = 300.0
folder_id = begin_folder(data)
before = sorted(data.iterdir())
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)

def add(**variables):
    nodes.add_node(num_cpus=0, env_vars=variables)
    nodes.wait_for_nodes()

def broken(folder, create):
    raise RuntimeError("it broke")

try:
    add()
    print(node_checks.refuse_other_versions())
    print(node_checks.try_nodes(data, folder_id))
    node_checks.look = lambda folder, create: Seen([], None, locked=False)
    try:
        node_checks.try_nodes(data, folder_id)
    except UnsafeFolder as error:
        print(error)
    print(node_checks.try_nodes(data, "another"))
    node_checks.look = broken
    print(*node_checks.try_nodes(data, folder_id))
    print(sorted(data.iterdir()) == before)
    add(PYTHONPATH=str(neighbour))
    print(*node_checks.refuse_other_versions())
    add(PYTHONPATH=str(far))
    try:
        node_checks.refuse_other_versions()
    except node_checks.OtherVersionError as error:
        print(error)
finally:
    ray.shutdown()
    nodes.shutdown()
"""


FAR = SPOKEN.current + 4
"""A protocol that no process here speaks."""


def another(folder: Path, spoken: str) -> Path:
    """Copy the packages, like those of a release that speaks other protocols."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("engine", "snapshots", "api"):
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    build = folder / "engine" / "runtime" / "contract" / "build.py"
    (folder / "engine" / "commit.txt").write_text("0123456789ab\n")
    text = build.read_text("utf-8")
    changed = re.sub(r"Protocols\(oldest=\d+, current=\d+\)", f"Protocols({spoken})", text)
    assert changed != text
    build.write_text(changed, "utf-8")
    return folder


@pytest.mark.ray
def test_each_node_that_has_the_folder_is_tried_and_versions_are_compared(tmp_path: Path) -> None:
    data = tmp_path / "data"
    neighbour = another(tmp_path / "neighbour", f"oldest={SPOKEN.current - 1}, current={SPOKEN.current}")
    far = another(tmp_path / "far", f"oldest={FAR}, current={FAR + 1}")
    command = [sys.executable, "-c", CHECKS, *map(str, (data, neighbour, far))]
    # Ray lets workers import from the folder in which the caller runs, before what is installed there.
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stderr
    same, whole, blind, without, failed, left, told, refused = run.stdout.splitlines()
    assert same == whole == without == "[]"
    assert f"{data} cannot be used, because its file system fails to show changes at once: the node " in blind
    assert "does not see a new file" in blind
    assert "is not tried with the node" in failed
    assert "it broke" in failed
    assert left == "True"
    assert "+g0123456789ab, and this service is" in told
    assert "they work together until the upgrade is over" in told
    assert f"+g0123456789ab, which speaks protocols {FAR} to {FAR + 1}; this service is" in refused
    assert f"which speaks protocol {SPOKEN.current}. Install one version on both" in refused
