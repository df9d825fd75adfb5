"""What a joining service checks: its data folder, and the nodes of the cluster."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any, Final, NamedTuple

import ray
from ray.exceptions import RayError

from engine.runtime.cluster.ray_nodes import SilentError, alive_nodes, ask_node, is_head
from engine.runtime.contract.build import SPOKEN, Protocols, build_version
from snapshots.data_folder.identity import begin_folder, check_identity, read_identity
from snapshots.data_folder.permissions import unusable
from snapshots.data_folder.trial import Seen, look, try_folder
from snapshots.errors import WrongFolder
from snapshots.files import Files, RealFiles

_AT_ONCE: Final = 16

VARIABLE: Final = "RAY_health_check_failure_threshold"
WANTED: Final = 200
"""Ten minutes: as long as Ray's processes wait for an unreachable control store."""
_LEAST_S: Final = 120.0


class Installed(NamedTuple):
    """What a node has installed. Plain values only: classes of this package may differ there."""

    version: str
    """Empty if the package is not installed."""
    protocols: tuple[int, int] | None
    """The oldest and the current protocol; None for releases without protocol numbers."""


class OtherVersionError(Exception):
    """A node has an incompatible version of the service."""


def refuse_other_versions() -> list[str]:
    """Compare versions with each other node; return warnings for the operator.

    A node that does not answer is left to later checks. Raises OtherVersionError, which names both
    versions.
    """
    here = ray.get_runtime_context().get_node_id()
    others = [node for node in alive_nodes() if node["NodeID"] != here]
    # This machine's Ray may have been started by another installation, too.
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
    """Return a function that tells which version is installed where it is called."""

    # A local function is pickled by value, so it must not use what an earlier version of this package lacks.
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


def try_nodes(data: Path, folder_id: str) -> list[str]:
    """Check that each other node sees this node's writes to the data folder; return warnings.

    A node without the folder is skipped, because it cannot activate detectors. Raises UnsafeFolder.
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
        # The text of Ray's error is the whole traceback.
        return [f"the data folder {data} is not tried with {name}: {getattr(error, 'cause', error)}"]


def _has_folder(data: Path, folder_id: str) -> bool:
    return read_identity(data, RealFiles()) == folder_id


def patience_warning() -> str | None:
    """Return a warning if Ray's head declares silent nodes dead too soon; else None. Asks the head.

    A node that was declared dead ends itself as soon as it learns of it. So if the link of an impatient head
    fails for a while, all nodes end once it is back.
    """
    heads = [node for node in alive_nodes() if is_head(node)]
    if not heads:
        return None
    try:
        patience_s = ask_node(heads[0], patience_in_force())
    except (SilentError, RayError) as error:
        return f"how long Ray's head waits for a node is unknown: {getattr(error, 'cause', error)}"
    if patience_s >= _LEAST_S:
        return None
    return (
        f"Ray's head declares a node dead after {patience_s:g} s without contact; the node then exits. "
        "A short failure of the head's link ends the whole cluster. "
        f"Start Ray with {VARIABLE}={WANTED} on every node"
    )


def patience_in_force() -> Any:
    """Return a function that tells how many seconds Ray waits in the process where it is called."""

    # A local function is pickled by value, so nodes with an earlier version of this package can run it.
    def patience_s() -> float:
        from ray._raylet import Config  # type: ignore[attr-defined]  # noqa: PLC0415

        return float(Config.health_check_failure_threshold() * Config.health_check_period_ms() / 1_000)

    return patience_s


DIRECTORY: Final = "directory-"
"""The prefix of the name of a directory's actor; the id of its folder follows."""

_ANSWER_S: Final = 5.0


def begin_joined_folder(data: Path, *, lock_wait_s: float = 0.0, must_exist: bool = False) -> str:
    """Return the id of a data folder, initializing a new one. Asks the directories of the cluster.

    Raises WrongFolder if one of them serves another folder at this path, and what `begin_folder` raises.
    """
    refuse_other_folder(data)
    return begin_folder(data, lock_wait_s=lock_wait_s, must_exist=must_exist)


def refuse_other_folder(data: Path) -> None:
    """Raise WrongFolder if the cluster serves another folder at this path."""
    files = RealFiles()
    try:
        found = read_identity(data, files)
        names: list[str] = [name for name in ray.util.list_named_actors() if name.startswith(DIRECTORY)]
        if found is not None and DIRECTORY + found in names:
            return
        refuse_unless_served(data, {name.removeprefix(DIRECTORY): _folder_of(name) for name in names}, files)
    except OSError as error:
        raise unusable(data, error) from error


def refuse_unless_served(data: Path, served: Mapping[str, str | None], files: Files) -> None:
    """Raise WrongFolder if a different folder is `served` at this path. Raises OSError, too.

    `served` has the path of each served folder by its id; None if its directory does not answer.
    """
    path = str(data.resolve())
    for folder_id, served_path in served.items():
        if served_path == path:
            check_identity(data, folder_id, files)
    if None in served.values() and read_identity(data, files) is None:
        # A lost directory is replaced within seconds.
        raise WrongFolder(
            f"{data} on {gethostname()} has no id, and a directory of the cluster does not answer whether it "
            "serves another folder there; try again, and look whether the right file system is mounted"
        )


def _folder_of(name: str) -> str | None:
    """Return the folder that a directory serves; None if it does not answer, empty if it has ended."""
    try:
        actor: Any = ray.get_actor(name)
        served: str = ray.get(actor.folder.remote(), timeout=_ANSWER_S)
    except TimeoutError:
        return None
    except (RayError, ValueError):
        # It has ended.
        return ""
    return served
