"""Tries whether every node of the cluster sees at once what this one changes in the data folder."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayError

from engine.runtime.cluster.nodes.node_asks import SilentError, alive_nodes, ask_node
from snapshots.data_folder.identity import read_identity
from snapshots.data_folder.trial import Seen, look, try_folder
from snapshots.files import RealFiles

_AT_ONCE: Final = 16


def try_nodes(data: Path, folder_id: str) -> list[str]:
    """Try the data folder between this node and each other one; return what an operator should know.

    A node without the folder is left out, because it can activate no detector. Raises UnsafeFolder.
    """
    here = ray.get_runtime_context().get_node_id()
    others = [node for node in alive_nodes() if node["NodeID"] != here]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        tried = threads.map(partial(_try_node, data, folder_id), others)
        return [warning for warnings in tried for warning in warnings]


def _try_node(data: Path, folder_id: str, node: dict[str, Any]) -> list[str]:
    name = f"the node {node['NodeManagerAddress']}"

    def look_there(folder: Path, create: str) -> Seen:
        return ask_node(node, partial(look, folder, create))

    try:
        if not ask_node(node, partial(_has_folder, data, folder_id)):
            return []
        return try_folder(data, look_there, peer=name)
    except (SilentError, RayError) as error:
        # Ray's own text is the whole traceback.
        return [f"the data folder {data} is not tried with {name}: {getattr(error, 'cause', error)}"]


def _has_folder(data: Path, folder_id: str) -> bool:
    return read_identity(data, RealFiles()) == folder_id
