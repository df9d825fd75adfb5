"""What is said of nodes and of the file system, where numbers alone would mislead."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from engine.runtime.contract.figures import NodeFigures
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.census import folder_figures
from engine.runtime.scheduler.workers.cluster_nodes import Nodes


@pytest.mark.parametrize(("files", "free", "told"), [(1000, 7, 7), (1000, 0, 0), (0, 0, 2**53 - 1)])
def test_a_file_system_without_a_limit_on_files_is_not_told_as_full(files, free, told):
    found: Any = SimpleNamespace(f_bavail=3, f_blocks=9, f_frsize=512, f_favail=free, f_files=files)
    figures = folder_figures(found)
    assert (figures.free_bytes, figures.total_bytes, figures.free_inodes) == (3 * 512, 9 * 512, told)
    assert folder_figures(os.statvfs("/")).total_bytes > 0


async def test_a_node_without_cpus_is_not_told_as_one_that_could_have_workers(tmp_path):
    def node(name: str, cpus: float, **more: Any) -> NodeFigures:
        memory = {"memory_bytes": 2**30, "memory_free_bytes": 0}
        return NodeFigures(id=name, address=name, host=name, alive=True, cpus=cpus, **memory, **more)

    async def look() -> list[NodeFigures]:
        return [node("head", 0), node("a", 2), node("b", 2, draining="operator")]

    port: Any = SimpleNamespace(here="head", look=look)
    nodes = Nodes(port, RuntimeSettings(data=tmp_path, worker_cpus=0.1, worker_memory_bytes=2**27))
    await nodes.look()
    assert nodes.no_room.endswith("1 of 3 nodes are large enough and not drained")
