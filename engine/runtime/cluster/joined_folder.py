"""The data folder of a service in a cluster: the one that the cluster serves at that path, if it serves any.

A machine that lacks the mount has an empty folder in its place. A service that gave that one an id would be a
second service, with no detectors and a token of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import ray
from ray.exceptions import RayError

from snapshots.data_folder.identity import begin_folder, check_identity, read_identity
from snapshots.data_folder.permissions import unusable
from snapshots.errors import WrongFolder
from snapshots.files import Files, RealFiles

DIRECTORY: Final = "directory-"
"""The name of a directory's actor is this and the id of its folder."""

_ANSWER_S: Final = 5.0


def begin_joined_folder(data: Path, *, lock_wait_s: float = 0.0, must_exist: bool = False) -> str:
    """Return the id of a data folder, which is begun if it is new. Asks the directories of the cluster.

    Raises WrongFolder if one of them serves another folder at this path, and what `begin_folder` raises.
    """
    refuse_other_folder(data)
    return begin_folder(data, lock_wait_s=lock_wait_s, must_exist=must_exist)


def refuse_other_folder(data: Path, files: Files | None = None) -> None:
    """Raise WrongFolder if the cluster serves another folder at this path. Changes nothing."""
    files = files or RealFiles()
    try:
        found = read_identity(data, files)
        names: list[str] = [name for name in ray.util.list_named_actors() if name.startswith(DIRECTORY)]
        if found is not None and DIRECTORY + found in names:
            return
        refuse_unless_served(data, {name.removeprefix(DIRECTORY): _folder_of(name) for name in names}, files)
    except OSError as error:
        raise unusable(data, error) from error


def refuse_unless_served(data: Path, served: Mapping[str, str | None], files: Files) -> None:
    """Raise WrongFolder if one of the folders that are `served` is at this path, and is another one.

    Their paths are given by their ids; None where the directory does not answer. Raises OSError, too.
    """
    path = str(data.resolve())
    for folder_id, served_path in served.items():
        if served_path == path:
            check_identity(data, folder_id, files)
    if None in served.values() and read_identity(data, files) is None:
        # It is replaced within seconds if it is lost.
        raise WrongFolder(
            f"{data} on {gethostname()} has no id, and a directory of the cluster does not answer whether it "
            "serves another folder there; try again, and look whether the right file system is mounted"
        )


def _folder_of(name: str) -> str | None:
    """Return the folder that a directory serves: None if it does not answer, empty if that is not known."""
    try:
        actor: Any = ray.get_actor(name)
        served: str = ray.get(actor.folder.remote(), timeout=_ANSWER_S)
    except TimeoutError:
        return None
    except (RayError, ValueError):
        # It has ended.
        return ""
    return served
