"""Starts or joins Ray, and leaves it. No other code does."""

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

# These must be set before ray is imported, which reads them.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# A late call must fail instead of starting another Ray.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
# Ray's processes, this one included, exit if they cannot reach the control store for this long; the default
# is a minute. Saving all detectors, or restarting the store, takes far less than these ten minutes.
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
"""The namespace is fixed, so that all services find the same actors by name."""

OBJECT_STORE_BYTES: Final = 80 * 1024 * 1024
"""The size of Ray's object store, close to its minimum: only objects larger than 100 KiB use it."""

_ENTRYPOINT: Final = "rule-detector"
_FOLDER_PREFIX: Final = "rd-ray-"
_RAYS: Final = "ray"
_TOKEN_FILE: Final = "token"  # noqa: S105 -- its name
_RECONNECT_S: Final = 600
"""How long the processes of an embedded Ray wait for an unreachable control store."""
_HEALTH_CHECKS: Final = 200
"""The raylet counts as dead after this many failed checks, one every three seconds."""
_START_S: Final = 90.0
_START_POLL_S: Final = 0.1
_JOIN_S: Final = 30.0
_ASK_S: Final = 2.0
_OTHER_CLUSTER: Final = "WrongClusterID"
_CREDENTIALS: Final = struct.calcsize("3i")
"""The size of SO_PEERCRED: pid, user and group of the other end of a connection."""


class _InstalledCode(JobConfig):
    """Makes workers import installed code.

    By default, Ray puts the working directory of the service at the front of their path, whatever code is in
    it.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        return True


@dataclass(slots=True)
class Cluster:
    """This process's Ray cluster."""

    address: str
    """The address that other processes join."""
    folder: TemporaryFolder | None
    """The private folder of an embedded Ray; None if Ray was joined."""
    processes: RayProcesses
    raylet: "RayletLink"
    watch: RayWatch

    @property
    def embedded(self) -> bool:
        """Whether this process started Ray, which ends with it."""
        return self.folder is not None


def _log_message(data: Any, ignore_prefix: bool) -> None:  # noqa: ARG001 -- as Ray calls it
    """Log what Ray would print, at debug level: the runtime itself reports workers that died."""
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
                # Otherwise a raylet that was stopped for a while ends when it continues.
                "health_check_failure_threshold": _HEALTH_CHECKS,
                # By default actors have a low priority, and starve on a busy machine.
                "worker_niceness": 0,
            },
            # Ray makes its folder accessible to everyone, but not the parent folder.
            "_temp_dir": str(folder.path / _RAYS),
        }
    else:
        try_joining(address, join_within_s)
    # Otherwise Ray's list of jobs stores the command line of this process, which may contain a token.
    ray_utils.get_entrypoint_name = lambda: _ENTRYPOINT
    # Otherwise Ray prints killed workers on standard output, whatever its other settings.
    ray_worker.print_to_stdstream = _log_message
    try:
        with processes.starting(), _patiently(processes), _few_processes():
            try:
                ray.init(address=address, **options)
            except _EndedEarlyError as error:
                # Another program may take the ports that Ray chose before Ray's processes listen.
                _log.warning("ray is started a second time: %s", error)
                ray.shutdown()
                processes.kill_started()
                ray.init(address=address, **options)
        if address == LOCAL:
            ray_security.check_guarded()
    except BaseException as error:
        # BaseException, because Ray turns a signal into a SystemExit.
        _leave(folder, processes)
        if not isinstance(error, Exception):
            raise
        # Ray raises a dozen kinds of exceptions here, which all mean the same to an operator.
        raise ClusterError(f"ray cannot be used at `{address}`: {error}") from error
    ours: Any = ray_worker.global_worker
    raylet = RayletLink(ours.node.raylet_socket_name)
    watch = RayWatch(partial(_ask, raylet), processes.stopped)
    watch.start()
    return Cluster(ray.get_runtime_context().gcs_address, folder, processes, raylet, watch)


class _EndedEarlyError(Exception):
    """An essential process of Ray ended while Ray was starting."""


@contextmanager
def _patiently(processes: RayProcesses) -> Iterator[None]:
    """Give Ray's processes more time to start than Ray's fixed 30 s, which a busy machine may exceed.

    Raises _EndedEarlyError if one of them has ended, which Ray's query for the node may take 30 s to show.
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
    """Keep Ray from starting its autoscaler and the process that copies workers' output to drivers.

    An embedded Ray needs neither. `ray start` has options for this, but `ray.init` has none.
    """
    module: Any = ray_parameter
    parameters = module.RayParams
    module.RayParams = partial(parameters, no_monitor=True, include_log_monitor=False)
    try:
        yield
    finally:
        module.RayParams = parameters


def stop(cluster: Cluster) -> bool:
    """Leave the cluster, and end it if this process started it.

    Returns whether Ray's shutdown returned; if not, only `os._exit` is sure to end the process. Close the
    backend first, because actors stop running.
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
    """A connection to Ray's raylet on this machine, which shows when that process ends.

    Ray itself does not notice a dead raylet while the control store answers, and never uses its successor.
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
            # The raylet is busy; or there never was a connection, so a missing socket proves nothing.
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
