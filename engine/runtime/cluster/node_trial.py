"""Tries whether every node of the cluster sees at once what this one changes in the data folder."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from snapshots.data_folder.identity import read_identity
from snapshots.data_folder.trial import Seen, look, try_folder
from snapshots.files import RealFiles

T = TypeVar("T")

_ANSWER_S: Final = 30.0
_AT_ONCE: Final = 16


class _SilentError(Exception):
    """The node does not answer."""


def try_nodes(data: Path, folder_id: str) -> list[str]:
    """Try the data folder between this node and each other one; return what an operator should know.

    A node without the folder is left out, because it can activate no detector. Raises UnsafeFolder.
    """
    here = ray.get_runtime_context().get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    others = [node for node in nodes if node["Alive"] and node["NodeID"] != here]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        tried = threads.map(partial(_try_node, data, folder_id), others)
        return [warning for warnings in tried for warning in warnings]


def _try_node(data: Path, folder_id: str, node: dict[str, Any]) -> list[str]:
    name = f"the node {node['NodeManagerAddress']}"

    def look_there(folder: Path, create: str) -> Seen:
        return _on(node, partial(look, folder, create))

    try:
        if not _on(node, partial(_has_folder, data, folder_id)):
            return []
        return try_folder(data, look_there, peer=name)
    except (_SilentError, RayError) as error:
        # Ray's own text is the whole traceback.
        return [f"the data folder {data} is not tried with {name}: {getattr(error, 'cause', error)}"]


def _has_folder(data: Path, folder_id: str) -> bool:
    return read_identity(data, RealFiles()) == folder_id


def _on(node: dict[str, Any], work: Callable[[], T]) -> T:
    """Do some work on a node and return its result. An OSError is raised as one."""
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task: Any = ray.remote(num_cpus=0, max_retries=0)(_call).options(scheduling_strategy=there)
    try:
        result: T = ray.get(task.remote(work), timeout=_ANSWER_S)
    except GetTimeoutError:
        # It is an OSError too, but says nothing about the file system.
        raise _SilentError(f"it has not answered for {_ANSWER_S:.0f} s") from None
    return result


def _call(work: Callable[[], T]) -> T:
    return work()
