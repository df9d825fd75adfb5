"""Ray started, or joined, and left again: the only place that does so."""

import contextlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Before ray is imported: it reads these then.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# A call that comes too late must fail, not start another Ray.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")

import ray

from engine.runtime.ray_processes import RayProcesses
from snapshots.errors import StorageError
from snapshots.lock import FolderLock

LOCAL: Final = "local"
"""The address that starts Ray inside."""

NAMESPACE: Final = "rule-detector"
"""Fixed, so that every front end finds the same actors by name."""

OBJECT_STORE_BYTES: Final = 80 * 1024 * 1024
"""Only what is larger than 100 KiB passes through it. Near the least that Ray takes."""

_TELLS_OF_TOKENS: Final = "ray._private.authentication.authentication_token_setup"
"""What tells at each start, as a warning, that tokens are asked for."""

_FOLDER_PREFIX: Final = "rd-ray-"
_REACH_S: Final = 5.0

_FOLDER_CHARS_MAX: Final = 40
"""Ray puts sockets some 60 characters below its folder, and their paths end at 107 bytes."""


class ClusterError(Exception):
    """Ray cannot be started or joined."""


@dataclass(slots=True)
class Cluster:
    """The Ray that this process is part of."""

    address: str
    """For other processes to join."""
    folder: "_Folder | None"
    """What Ray keeps while it runs, where it was started here, for this user alone."""
    processes: RayProcesses


def start(address: str = LOCAL) -> Cluster:
    """Start Ray inside where `address` is `local`, else join the cluster at `address`.

    Ray takes over SIGTERM: install signal handlers afterwards. Raises ClusterError.
    """
    folder = None
    processes = RayProcesses()
    options: dict[str, Any] = {
        "namespace": NAMESPACE,
        "log_to_driver": False,
        "logging_level": logging.WARNING,
    }
    if address == LOCAL:
        folder = _Folder()
        # Whoever has the token can run code here. Ray asks for one of its own accord from 2.59 on; this one
        # lasts as long as this process, and leaves nothing in the home folder.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        logging.getLogger(_TELLS_OF_TOKENS).setLevel(logging.ERROR)
        options |= {
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            # Ray opens its folder to everyone, but not the one above it.
            "_temp_dir": str(folder.path / "ray"),
        }
    else:
        _check_reachable(address)
    try:
        with processes.starting():
            ray.init(address=address, **options)
    except BaseException as error:
        # Also where a signal ends the start: Ray makes a SystemExit of it.
        _leave(folder, processes)
        if not isinstance(error, Exception):
            raise
        # Ray raises a dozen kinds here; all mean the same to an operator.
        raise ClusterError(f"ray cannot be used at `{address}`: {error}") from error
    return Cluster(ray.get_runtime_context().gcs_address, folder, processes)


def stop(cluster: Cluster) -> None:
    """Leave the cluster, and end it where it was started here.

    Actors run nothing more: close the fleet before.
    """
    _leave(cluster.folder, cluster.processes)


def _leave(folder: "_Folder | None", processes: RayProcesses) -> None:
    with processes.ending():
        ray.shutdown()
    if folder is not None:
        folder.remove()


class _Folder:
    """A folder of one Ray's own, for this user alone, locked for as long as this process lives.

    Folders that processes left behind when they were killed are removed when the next one is made.
    """

    def __init__(self) -> None:
        usual = tempfile.gettempdir()
        within = Path(usual if len(usual) <= _FOLDER_CHARS_MAX else "/tmp")  # noqa: S108 -- mkdtemp makes its own
        for left in within.glob(f"{_FOLDER_PREFIX}*"):
            _remove_if_left(left)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=within))
            self._lock = FolderLock(self.path)
            try:
                self._lock.acquire()
            except StorageError:
                # Another start took it for one that was left behind, in the moment before it was locked.
                continue
            return

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def _remove_if_left(folder: Path) -> None:
    """Remove a folder that is certainly one of these, and that no living process holds."""
    with contextlib.suppress(OSError, StorageError):
        within = {entry.name for entry in folder.iterdir()}
        if "lock" in within and within <= {"lock", "ray"} and folder.stat().st_uid == os.getuid():
            with FolderLock(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _check_reachable(address: str) -> None:
    """Raise ClusterError at once where Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ClusterError(f"`{address}` is not of the form HOST:PORT, which is what a cluster is joined by")
    if not port.isdecimal():
        # `auto`, for one, is for Ray to find out.
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"nothing answers at `{address}`: {error}") from error
