"""The versions of the service on the nodes of a cluster: compared before anything else is done there."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import ray
from ray.exceptions import RayError

from engine.runtime.cluster.nodes.node_asks import SilentError, alive_nodes, ask_node
from engine.runtime.contract.build import SPOKEN, Protocols, build_version

_AT_ONCE: Final = 16


class Installed(NamedTuple):
    """What a node has. Plain values, because a class of this package may be another one there."""

    version: str
    """Empty if the package is not installed."""
    protocols: tuple[int, int] | None
    """The oldest and the current one; None before there were numbers."""


class OtherVersionError(Exception):
    """A node has a version of the service with which this one cannot work."""


def refuse_other_versions() -> list[str]:
    """Compare versions with each other node; return what an operator should know.

    A node that does not answer is left to the later trials. Raises OtherVersionError, which says both
    versions.
    """
    here = ray.get_runtime_context().get_node_id()
    others = [node for node in alive_nodes() if node["NodeID"] != here]
    # This machine's Ray may have been started by another install, too.
    own = [node for node in alive_nodes() if node["NodeID"] == here]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(_ask, own + others))
    pairs = [(node, installed) for node, installed in zip(own + others, found, strict=True) if installed]
    refused = [text for node, installed in pairs if (text := _refusal(node, installed))]
    if refused:
        raise OtherVersionError("\n".join(refused))
    return [
        f"the node {node['NodeManagerAddress']} has rule-detector {installed.version}, and this service is "
        f"{build_version()}: they work together until the upgrade is over"
        for node, installed in pairs
        if installed.version != build_version()
    ]


def _ask(node: dict[str, Any]) -> Installed | None:
    try:
        return Installed(*ask_node(node, what_is_installed()))
    except (SilentError, RayError):
        return None


def _refusal(node: dict[str, Any], installed: Installed) -> str | None:
    protocols = None if installed.protocols is None else Protocols(*installed.protocols)
    if protocols is not None and SPOKEN.meet(protocols):
        return None
    where = f"the node {node['NodeManagerAddress']}"
    if not installed.version:
        return f"{where} has no rule-detector in the Python of its Ray; this service is {build_version()}"
    speaks = "no protocol that has a number" if protocols is None else str(protocols)
    return (
        f"{where} has rule-detector {installed.version}, which speaks {speaks}; this service is "
        f"{build_version()}, which speaks {SPOKEN}. Install one version on both; from release to release, "
        "nodes can be upgraded one after another"
    )


def what_is_installed() -> Callable[[], tuple[str, tuple[int, int] | None]]:
    """Return the function that tells the version of the place where it is called."""

    # Not of the module, and without anything that an earlier version of this package may not have.
    def installed() -> tuple[str, tuple[int, int] | None]:
        from importlib import metadata  # noqa: PLC0415

        try:
            from engine.runtime.contract import build  # noqa: PLC0415
        except ImportError:
            try:
                return metadata.version("rule-detector"), None
            except metadata.PackageNotFoundError:
                return "", None
        return build.build_version(), (build.SPOKEN.oldest, build.SPOKEN.current)

    return installed
