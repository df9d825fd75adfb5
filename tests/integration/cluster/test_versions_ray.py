"""Nodes with other versions of the service are found before anything else is asked of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.runtime.contract.build import SPOKEN

ROOT = Path(__file__).parents[3]

VERSIONS = """
import sys

import ray
from ray.cluster_utils import Cluster

from engine.runtime.cluster import node_checks, ray_nodes
from engine.runtime.cluster.node_checks import OtherVersionError

# A busy machine takes long to start a process on the other node.
ray_nodes.ask_node.__defaults__ = (300.0,)
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
try:
    print(node_checks.refuse_other_versions())
    for package in sys.argv[1:]:
        other = nodes.add_node(num_cpus=0, env_vars={"PYTHONPATH": package})
        nodes.wait_for_nodes()
        try:
            print(*node_checks.refuse_other_versions())
        except OtherVersionError as error:
            print(error)
        nodes.remove_node(other)
finally:
    ray.shutdown()
    nodes.shutdown()
"""


FAR = SPOKEN.current + 4
"""A protocol that nobody here speaks."""


def another(folder: Path, spoken: str) -> Path:
    """Copy the packages, as if it were of a release that speaks other protocols, or none with a number."""
    ignored = shutil.ignore_patterns("__pycache__")
    for package in ("engine", "snapshots", "api"):
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    build = folder / "engine" / "runtime" / "contract" / "build.py"
    (folder / "engine" / "commit.txt").write_text("0123456789ab\n")
    text = build.read_text("utf-8")
    if spoken:
        changed = re.sub(r"Protocols\(oldest=\d+, current=\d+\)", f"Protocols({spoken})", text)
        assert changed != text
        build.write_text(changed, "utf-8")
    else:
        build.unlink()
    return folder


@pytest.mark.ray
def test_versions_of_nodes_are_compared_and_a_refusal_says_both(tmp_path: Path) -> None:
    packages = [
        another(tmp_path / "before", ""),
        another(tmp_path / "far", f"oldest={FAR}, current={FAR + 1}"),
        another(tmp_path / "neighbour", f"oldest={SPOKEN.current - 1}, current={SPOKEN.current}"),
    ]
    command = [sys.executable, "-c", VERSIONS, *map(str, packages)]
    # Ray lets workers import from the folder in which the caller runs, before what is installed there.
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert run.returncode == 0, run.stderr
    same, before, far, neighbour = run.stdout.splitlines()
    assert same == "[]"
    assert "which speaks no protocol that has a number; this service is" in before
    assert f"+g0123456789ab, which speaks protocols {FAR} to {FAR + 1}; this service is" in far
    assert f"which speaks protocol {SPOKEN.current}. Install one version on both" in far
    assert "+g0123456789ab, and this service is" in neighbour
    assert "they work together until the upgrade is over" in neighbour
