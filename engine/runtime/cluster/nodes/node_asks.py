"""Asking each node of the cluster something, in a process of Ray there."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import GetTimeoutError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

T = TypeVar("T")

ANSWER_S: Final = 30.0
_HEAD: Final = "node:__internal_head__"
"""The resource that Ray gives to the head alone."""


class SilentError(Exception):
    """The node does not answer."""


def alive_nodes() -> list[dict[str, Any]]:
    """Return the nodes that Ray takes for alive, as Ray describes them. Asks Ray."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"]]


def is_head(node: dict[str, Any]) -> bool:
    """Whether Ray's control store runs on the node."""
    return _HEAD in node["Resources"]


def ask_node(node: dict[str, Any], work: Callable[[], T], within_s: float = ANSWER_S) -> T:
    """Do some work on a node and return its result. Raises what it raises, RayError and SilentError.

    Only what `work` names by itself must be installed there.
    """

    def call() -> T:
        return work()

    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task: Any = ray.remote(num_cpus=0, max_retries=0)(call).options(scheduling_strategy=there)
    try:
        result: T = ray.get(task.remote(), timeout=within_s)
    except GetTimeoutError:
        # It is an OSError too, but says nothing about the node's file system.
        raise SilentError(f"it has not answered for {within_s:.0f} s") from None
    return result
