"""Starting or joining Ray, and leaving it again. No other code does."""

import logging
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

# Set before importing ray, which reads them then.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# A call that comes too late must fail instead of starting another Ray.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
# Ray's processes, this one included, exit if they cannot reach the control store for this long. The default
# is a minute. Saving all detectors, or starting the store again, takes far less than these ten minutes.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "600")

import ray
from ray._private import parameter as ray_parameter
from ray._private import services as ray_services
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker
from ray.job_config import JobConfig

from engine.runtime.cluster.ray_calls import ask_control_store
from engine.runtime.cluster.session import ray_security
from engine.runtime.cluster.session.joining import ClusterError, try_joining
from engine.runtime.cluster.session.ray_processes import RayProcesses
from engine.runtime.cluster.session.ray_watch import RayGoneError, RayWatch
from engine.runtime.process.temporary import TemporaryFolder

_log = logging.getLogger(__name__)

LOCAL: Final = "local"
"""The address that means an embedded Ray."""

NAMESPACE: Final = "rule-detector"
"""Fixed, so that every front end finds the same actors by name."""

OBJECT_STORE_BYTES: Final = 80 * 1024 * 1024
"""Only objects larger than 100 KiB pass through it. This is close to Ray's minimum."""

_ENTRYPOINT: Final = "rule-detector"
_FOLDER_PREFIX: Final = "rd-ray-"
_RAYS: Final = "ray"
_TOKEN_FILE: Final = "token"  # noqa: S105 -- its name
_RECONNECT_S: Final = 600
"""How long the processes of an embedded Ray wait for a control store that is away."""
_HEALTH_CHECKS: Final = 200
"""After this many failed checks, one every three seconds, the raylet counts as dead: it was stopped."""
_START_S: Final = 90.0
_START_POLL_S: Final = 0.1
_JOIN_S: Final = 30.0
_ASK_S: Final = 2.0
_OTHER_CLUSTER: Final = "WrongClusterID"
_CREDENTIALS: Final = struct.calcsize("3i")
"""The size of what the kernel tells of the other end of a connection: pid, user and group."""


class _InstalledCode(JobConfig):
    """Have workers import what is installed.

    Otherwise Ray puts the folder in which the service was started at the front of their path, whatever code
    is in it.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        return True


@dataclass(slots=True)
class Cluster:
    """The Ray cluster that this process belongs to."""

    address: str
    """The address at which other processes join."""
    folder: TemporaryFolder | None
    """The private folder of an embedded Ray; None if Ray was joined."""
    processes: RayProcesses
    raylet: "RayletLink"
    watch: RayWatch

    @property
    def embedded(self) -> bool:
        """Whether Ray was started here, and ends with this process."""
        return self.folder is not None


def _log_message(data: Any, ignore_prefix: bool) -> None:  # noqa: ARG001 -- as Ray calls it
    """Log what Ray would print, for debugging only: the runtime reports workers that died."""
    _log.debug("ray: %s", " ".join(data["lines"]))


def start(address: str = LOCAL, join_within_s: float = _JOIN_S) -> Cluster:
    """Start an embedded Ray if `address` is `local`, otherwise join the cluster at `address`.

    Ray replaces the handler of SIGTERM: install signal handlers afterwards. Raises ClusterError.
    """
    folder = None
    processes = RayProcesses()
    options: dict[str, Any] = {
        "namespace": NAMESPACE,
        "job_config": _InstalledCode(),
        "log_to_driver": False,
        # This process configures logging itself.
        "configure_logging": False,
    }
    if address == LOCAL:
        folder = TemporaryFolder(_FOLDER_PREFIX, frozenset({_RAYS, _TOKEN_FILE}))
        ray_security.require_token(folder.path / _TOKEN_FILE)
        ray_security.listen_on_loopback()
        options |= {
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_system_config": {
                "gcs_rpc_server_reconnect_timeout_s": _RECONNECT_S,
                # Otherwise a raylet that was stopped for a while ends when it goes on.
                "health_check_failure_threshold": _HEALTH_CHECKS,
                # By default actors have a low priority: on a busy machine, the directory and workers starve.
                "worker_niceness": 0,
            },
            # Ray makes its folder accessible to everyone, but not the parent folder.
            "_temp_dir": str(folder.path / _RAYS),
        }
    else:
        try_joining(address, join_within_s)
    # Otherwise Ray stores the command line of this process, which may have a token, in its list of jobs.
    ray_utils.get_entrypoint_name = lambda: _ENTRYPOINT
    # Otherwise Ray prints on standard output that a worker was killed, whatever its other settings.
    ray_worker.print_to_stdstream = _log_message
    try:
        with processes.starting(), _patiently(processes), _few_processes():
            try:
                ray.init(address=address, **options)
            except _EndedEarlyError as error:
                # Ray chooses ports, which another program may take before a process of Ray listens.
                _log.warning("ray is started a second time: %s", error)
                ray.shutdown()
                processes.kill_started()
                ray.init(address=address, **options)
        if address == LOCAL:
            ray_security.check_guarded()
    except BaseException as error:
        # Also if a signal ends the start: Ray turns it into a SystemExit.
        _leave(folder, processes)
        if not isinstance(error, Exception):
            raise
        # Ray raises a dozen kinds here; all mean the same to an operator.
        raise ClusterError(f"ray cannot be used at `{address}`: {error}") from error
    ours: Any = ray_worker.global_worker
    raylet = RayletLink(ours.node.raylet_socket_name)
    watch = RayWatch(partial(_ask, raylet), processes.stopped)
    watch.start()
    return Cluster(ray.get_runtime_context().gcs_address, folder, processes, raylet, watch)


class _EndedEarlyError(Exception):
    """A process that Ray cannot do without has ended while Ray was starting."""


@contextmanager
def _patiently(processes: RayProcesses) -> Iterator[None]:
    """Give Ray's processes more time to start than Ray's fixed 30 s: a busy machine takes longer.

    Raises _EndedEarlyError if one of them has ended. Ray's query for the node takes up to 30 s to show that.
    """
    get_node: Any = ray_services.get_node

    def patient(*given: Any) -> Any:
        give_up_s = time.monotonic() + _START_S
        while True:
            try:
                return get_node(*given)
            except RuntimeError:
                # The raylet has not registered yet.
                if ended := processes.ended_early():
                    raise _EndedEarlyError(f"{' and '.join(ended)} ended while it started") from None
                if time.monotonic() > give_up_s:
                    raise
            time.sleep(_START_POLL_S)

    ray_services.get_node = patient
    try:
        yield
    finally:
        ray_services.get_node = get_node


@contextmanager
def _few_processes() -> Iterator[None]:
    """Have Ray start neither its autoscaler nor the process that copies workers' output to drivers.

    An embedded Ray needs neither. `ray start` has options for this, and `ray.init` has none.
    """
    module: Any = ray_parameter
    parameters = module.RayParams
    module.RayParams = partial(parameters, no_monitor=True, include_log_monitor=False)
    try:
        yield
    finally:
        module.RayParams = parameters


def stop(cluster: Cluster) -> bool:
    """Leave the cluster, and end it if it was started here.

    Returns whether Ray's shutdown returned. If it did not, only `os._exit` is sure to end the process. Actors
    stop running, so close the backend first.
    """
    cluster.watch.end()
    cluster.raylet.close()
    return _leave(cluster.folder, cluster.processes)


def _leave(folder: TemporaryFolder | None, processes: RayProcesses) -> bool:
    ended = processes.end(ray.shutdown)
    if folder is not None:
        folder.remove()
    return ended


class RayletLink:
    """A connection to Ray's process on this machine, which ends with that process.

    As long as the control store answers, Ray itself goes on with a dead raylet, and never asks its successor.
    """

    def __init__(self, path: str) -> None:
        self._path = path.removeprefix("unix://")
        self._socket: socket.socket | None = None
        self._pid = 0

    def check(self) -> None:
        """Raise RayGoneError if the process has ended."""
        if self._socket is not None and not _has_ended(self._socket):
            return
        made = socket.socket(socket.AF_UNIX)
        made.setblocking(False)
        try:
            made.connect(self._path)
        except OSError as error:
            made.close()
            # It is busy; or there never was a connection, and the file is not there, which says nothing.
            knows = isinstance(error, ConnectionRefusedError) or self._socket is not None
            if isinstance(error, BlockingIOError) or not knows:
                return
            raise _raylet_gone() from error
        pid = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS))[0]
        if self._socket is not None:
            self._socket.close()
            if pid != self._pid:
                made.close()
                raise _raylet_gone()
        self._socket, self._pid = made, pid

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _has_ended(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _raylet_gone() -> RayGoneError:
    return RayGoneError("ray's process on this machine, the raylet, has ended")


def _ask(raylet: RayletLink) -> None:
    """Send a small query to Ray's control store. Raises RayGoneError, and what Ray raises."""
    raylet.check()
    try:
        ask_control_store(_ASK_S)
    except Exception as error:
        if _OTHER_CLUSTER in str(error):
            raise RayGoneError("ray's control store was started again without what it knew") from error
        raise
