"""Tries to join a cluster in a process that can be killed, because Ray may hang for minutes."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from engine.runtime.cluster.session.ray_processes import command_line

_REACH_S: Final = 5.0
_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.02
_RAYLET_S: Final = 5.0
"""How long to wait for a raylet on a machine without one."""
_FEWER_TRIES: Final = {"RAY_gcs_server_port_wait_time_s": "3"}
"""With this, Ray tries three times, one a second, to reach the control store, and not twenty times."""
_CLUSTER: Final = "--gcs-address="
_JOIN: Final = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
ray.shutdown()
"""
_RAISED: Final = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception): (.+)")
_OTHER_TOKEN: Final = re.compile(r"unauthenticated|authentication|token", re.IGNORECASE)
_VERSIONS: Final = "Version mismatch:"
_HINT: Final = (
    "A raylet of that cluster must run on this machine, "
    "and RAY_AUTH_MODE, the token and, with RAY_USE_TLS, the CA certificate must be those of the cluster"
)


class ClusterError(Exception):
    """Ray cannot be started or joined."""


def try_joining(address: str, within_s: float) -> None:
    """Join a cluster in a process of its own, and leave it again. Raises ClusterError.

    Retries until the time is over, because a node of the cluster may just have died; without a raylet on this
    machine, it gives up sooner. A signal handler may raise meanwhile.
    """
    began_s = time.monotonic()
    while True:
        give_up_s = began_s + within_s
        _check_reachable(address)
        if clusters := _clusters_here():
            reason = _attempt(address, give_up_s - time.monotonic(), clusters)
            if reason is None:
                return
        else:
            # Ray would look for one until the timeout, and then not mention it.
            reason = "no raylet runs on this machine"
            give_up_s = began_s + min(within_s, _RAYLET_S)
        if _OTHER_TOKEN.search(reason) or time.monotonic() + _AGAIN_S >= give_up_s:
            raise ClusterError(f"ray cannot be joined at `{address}`: {reason}. {_HINT}")
        time.sleep(_AGAIN_S)


def _clusters_here() -> list[str]:
    """Return the addresses of the clusters with raylets on this machine, as Ray finds them."""
    lines = [command_line(int(path.name)).split("\0") for path in Path("/proc").glob("[0-9]*")]
    raylets = [line for line in lines if "raylet" in Path(line[0]).name]
    found = {
        next((one.removeprefix(_CLUSTER) for one in line if one.startswith(_CLUSTER)), "unknown")
        for line in raylets
    }
    return sorted(found)


def _attempt(address: str, within_s: float, clusters: list[str]) -> str | None:
    """Return why the cluster cannot be joined; None if it can. `clusters` have raylets on this machine."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(  # noqa: S603 -- all ours
            [sys.executable, "-P", "-c", _JOIN, address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **_FEWER_TRIES},
            # Ctrl-C must reach only this process, which then ends the child.
            start_new_session=True,
        )
        try:
            ended = _has_ended(child.pid, within_s)
        finally:
            # The child is not reaped yet, so no other process group can have its number.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if not ended:
            here = ", ".join(clusters)
            return f"that takes longer than {within_s:.0f} s, where the raylets of this machine are of {here}"
        if child.returncode == 0:
            return None
        errors.seek(0)
        return _in_words(errors.read().decode("utf-8", "replace"))


def _has_ended(child: int, within_s: float) -> bool:
    """Wait for the end of a child without reaping it; return whether it has ended."""
    give_up_s = time.monotonic() + within_s
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > give_up_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _in_words(output: str) -> str:
    """Return the message of the exception that ended a process, or else its last line.

    Of several exceptions, one about the token explains more than the last, which says only what failed.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if _VERSIONS in line:
            # Ray lists the versions of both sides in the lines that follow.
            return ", ".join([line.partition(_VERSIONS)[2].strip(), *lines[number + 1 :]]).replace(":,", ":")
    raised = [match[1] for line in lines if (match := _RAISED.match(line))]
    last = (raised or lines or ["ray's process exited without output"])[-1]
    return next(filter(_OTHER_TOKEN.search, raised), last).rstrip(".")


def _check_reachable(address: str) -> None:
    """Raise ClusterError at once if nothing listens."""
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ClusterError(f"`{address}` is not an address of the form HOST:PORT")
    if not port.isdecimal():
        # Ray resolves `auto` and the like.
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ClusterError(f"nothing answers at `{address}`: {reason}") from error
