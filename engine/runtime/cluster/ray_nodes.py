"""The nodes of the cluster: what Ray knows of them, which are drained, and how to run a function on one."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Literal, TypeVar

import ray
from ray._private import state
from ray.exceptions import GetTimeoutError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from engine.runtime.cluster.ray_calls import control_store
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.figures import NodeFigures
from engine.runtime.scheduler.workers.cluster_nodes import NodesPort

T = TypeVar("T")

_KEYS: Final = b"rule-detector"
_DRAINED: Final = b"drained-"
"""The namespace and the prefix of the key that Ray's control store keeps for each drained node, so that all
services and directories of the cluster see it."""

_ANSWER_S: Final = 5.0
_NODE_LABEL: Final = "ray.io/node-id"
"""The label with which Ray marks every node with its id."""

ANSWER_S: Final = 30.0
"""The timeout of a function that runs on a node."""
_HEAD: Final = "node:__internal_head__"
"""The resource that only Ray's head has."""


def on_node(node: str) -> dict[str, Any]:
    """Return the scheduling option that starts an actor on a node at once, or not at all."""
    return {
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False, _fail_on_unavailable=True)
    }


def not_on(avoid: Collection[str]) -> dict[str, Any]:
    """Return the scheduling option that avoids nodes; no option if there is no other node. Asks Ray."""
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    if not (bad := sorted(alive & set(avoid))) or len(bad) == len(alive):
        return {}
    return {"label_selector": {_NODE_LABEL: f"!in({','.join(bad)})"}}


def nodes_of_actors() -> dict[str, str]:
    """Return the node of each actor that Ray considers alive, by the name of the actor. Asks Ray."""
    store: Any = state.state
    actors: dict[str, dict[str, Any]] = store.actor_table(None, None, "ALIVE")
    return {actor["Name"]: actor["Address"]["NodeID"] for actor in actors.values()}


class RayNodes(NodesPort):
    """The nodes of this process's cluster."""

    @property
    def here(self) -> str:
        return ray.get_runtime_context().get_node_id()

    async def look(self) -> list[NodeFigures]:
        return await off_loop(look, "ray nodes")

    async def drain(self, node: str, *, draining: bool) -> None:
        await off_loop(lambda: _drain(node, draining=draining), "ray nodes")


def look() -> list[NodeFigures]:
    """Return all nodes that Ray knows, dead ones too. Asks Ray, so it may block."""
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    store: Any = state.state
    free: dict[str, dict[str, float]] = store.available_resources_per_node()
    by_ray: dict[str, int] = store.get_draining_nodes()
    by_operators: list[bytes] = control_store().internal_kv_keys(_DRAINED, _KEYS, timeout=_ANSWER_S)
    drained = {key.removeprefix(_DRAINED).decode() for key in by_operators}

    def drainer(node: str) -> Literal["", "operator", "ray"]:
        if node in drained:
            return "operator"
        return "ray" if node in by_ray else ""

    return [
        NodeFigures(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            host=node["NodeManagerHostname"],
            alive=node["Alive"],
            cpus=node["Resources"].get("CPU", 0.0),
            memory_bytes=int(node["Resources"].get("memory", 0)),
            cpus_free=free.get(node["NodeID"], {}).get("CPU", 0.0),
            memory_free_bytes=int(free.get(node["NodeID"], {}).get("memory", 0)),
            draining=drainer(node["NodeID"]),
        )
        for node in found
    ]


def _drain(node: str, *, draining: bool) -> None:
    key = _DRAINED + node.encode()
    if draining:
        control_store().internal_kv_put(key, b"1", True, _KEYS, timeout=_ANSWER_S)
    else:
        control_store().internal_kv_del(key, False, _KEYS, timeout=_ANSWER_S)


def node_for_directory(
    nodes: Iterable[NodeFigures], here: str, lost_on: str = "", failed: Sequence[str] = ()
) -> str | None:
    """Return the node on which to start a directory; None if Ray may choose any.

    The node is alive and not drained. In order of preference: no directory has `failed` to start on it lately
    (the latest comes last), the last directory was not lost on it, it may have workers, it is this process's
    own.
    """
    takers = [node for node in nodes if node.alive and not node.draining]

    def order(node: NodeFigures) -> tuple[int, bool, bool, bool, str]:
        failure = failed.index(node.id) if node.id in failed else -1
        return failure, node.id == lost_on, not node.cpus, node.id != here, node.id

    return min(takers, key=order).id if takers else None


class SilentError(Exception):
    """The node does not answer."""


def alive_nodes() -> list[dict[str, Any]]:
    """Return Ray's descriptions of the nodes that it considers alive. Asks Ray."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def is_head(node: dict[str, Any]) -> bool:
    """Whether Ray's control store runs on the node."""
    return _HEAD in node["Resources"]


def ask_node(node: dict[str, Any], work: Callable[[], T]) -> T:
    """Run a function on a node and return its result. Raises what it raises, RayError and SilentError.

    The node must have only those packages installed that `work` itself imports.
    """

    def call() -> T:
        return work()

    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task: Any = ray.remote(num_cpus=0, max_retries=0)(call).options(scheduling_strategy=there)
    try:
        result: T = ray.get(task.remote(), timeout=ANSWER_S)
    except GetTimeoutError:
        # It is an OSError, but says nothing about the node's file system.
        raise SilentError(f"it has not answered for {ANSWER_S:.0f} s") from None
    return result
