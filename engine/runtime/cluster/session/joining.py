"""Tries to join a cluster, in a process that can be given up because Ray may hang for minutes."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Final

_REACH_S: Final = 5.0
_AGAIN_S: Final = 1.0
_LOOK_S: Final = 0.02
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
    "and RAY_AUTH_MODE and the token must be those of the cluster"
)


class ClusterError(Exception):
    """Ray cannot be started or joined."""


def try_joining(address: str, within_s: float) -> None:
    """Join a cluster in a process of its own, and leave it again. Raises ClusterError.

    Tries again until the time is over, because a node of the cluster may just have died. A signal handler may
    raise meanwhile.
    """
    give_up_s = time.monotonic() + within_s
    while True:
        _check_reachable(address)
        reason = _attempt(address, give_up_s - time.monotonic())
        if reason is None:
            return
        if _OTHER_TOKEN.search(reason) or time.monotonic() + _AGAIN_S >= give_up_s:
            raise ClusterError(f"ray cannot be joined at `{address}`: {reason}. {_HINT}")
        time.sleep(_AGAIN_S)


def _attempt(address: str, within_s: float) -> str | None:
    """Return why the cluster cannot be joined; None if it can."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(  # noqa: S603 -- all ours
            [sys.executable, "-P", "-c", _JOIN, address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # A Ctrl-C is for this process, which then ends the other one.
            start_new_session=True,
        )
        try:
            ended = _has_ended(child.pid, within_s)
        finally:
            # It is not reaped yet, so no other process group can have its number.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if not ended:
            return f"that takes longer than {within_s:.0f} s"
        if child.returncode == 0:
            return None
        errors.seek(0)
        return _in_words(errors.read().decode("utf-8", "replace"))


def _has_ended(child: int, within_s: float) -> bool:
    """Wait for the end of a child, without reaping it; return whether it has ended."""
    give_up_s = time.monotonic() + within_s
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > give_up_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _in_words(output: str) -> str:
    """Return the message of the exception that ended a process, or else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if _VERSIONS in line:
            # Ray lists the versions of both sides in the lines that follow.
            return ", ".join([line.partition(_VERSIONS)[2].strip(), *lines[number + 1 :]]).replace(":,", ":")
    raised = [match[1] for line in lines if (match := _RAISED.match(line))]
    last = (raised or lines or ["ray's process ended without a word"])[-1]
    return last.rstrip(".")


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
        raise ClusterError(f"nothing answers at `{address}`: {error}") from error
