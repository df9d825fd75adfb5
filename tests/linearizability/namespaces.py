"""Nodes that are network namespaces of this machine, so that a partition between them is real.

Each has two interfaces: one to a bridge that joins the nodes, and one to a bridge for their clients. A node
that is cut off from the others is still reached by its clients, as where only a switch between racks fails.
All addresses are of the networks for benchmarks (RFC 2544), and no packet leaves the machine.

The names tell the process that made them. What a process has left that was killed, the next one removes.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

PREFIX: Final = "rdn"
INSIDE: Final = "eth18"
"""A node's interface to other nodes, as it sees it."""
_RUN: Final = """
[ -z "$0" ] || mount --bind "$0" /etc/hosts
empty=$1; shift
until [ "$1" = -- ]; do mount --bind "$empty" /proc/$1; shift; done
shift; exec "$@"
"""
"""`ip netns exec` gives a command mounts of its own."""
WHY_NOT: Final = "network namespaces cannot be made here"


def ip(*arguments: str) -> str:
    """Run `ip`. Raises CalledProcessError."""
    run = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True, timeout=20)
    return run.stdout


def possible() -> bool:
    """Whether this process may make network namespaces and links."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    name = f"{PREFIX}{os.getpid()}try"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "name", "one", "type", "veth", "peer", "name", "other")
        finally:
            ip("netns", "del", name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@dataclass(frozen=True)
class Namespace:
    """One node's network."""

    name: str
    number: int
    link: str
    """The end of its interface that is on the bridge of the nodes."""
    bridge: str
    address: str
    """Where other nodes reach it."""
    client_address: str

    def command(self, *arguments: str, hosts: Path | None, hidden: Iterable[int], empty: Path) -> list[str]:
        """Return the command line that runs a command there, with a file instead of /etc/hosts.

        It does not see the hidden processes: an empty folder is in the place of what tells of them.
        """
        inside = ["sh", "-c", _RUN, str(hosts or ""), str(empty), *map(str, hidden), "--", *arguments]
        return ["ip", "netns", "exec", self.name, *inside]

    def pids(self) -> set[int]:
        """Return the processes that run there."""
        return {int(line) for line in ip("netns", "pids", self.name).split()}

    def cut_off(self) -> None:
        """Lose all packets between this node and the others, both ways and without a word to either."""
        ip("link", "set", self.link, "nomaster")

    def heal(self) -> None:
        """Undo `cut_off`."""
        ip("link", "set", self.link, "master", self.bridge)

    def readdressed(self) -> "Namespace":
        """Give this node a new address among the nodes, never used before, instead of its own."""
        network, _, host = self.address.rpartition(".")
        address = f"{network}.{int(host) + 100}"
        ip("-n", self.name, "addr", "del", f"{self.address}/24", "dev", INSIDE)
        ip("-n", self.name, "addr", "add", f"{address}/24", "dev", INSIDE)
        return replace(self, address=address)


@contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """Yield this many nodes that reach each other; all of them and their processes are gone at the end."""
    sweep()
    own = f"{PREFIX}{os.getpid()}"
    third = _free_network()
    try:
        bridges = [f"{own}b", f"{own}c"]
        for bridge, network in zip(bridges, (18, 19), strict=True):
            ip("link", "add", bridge, "type", "bridge")
            ip("addr", "add", f"198.{network}.{third}.1/24", "dev", bridge)
            ip("link", "set", bridge, "up")
        nodes = [_made(own, bridges, number, third) for number in range(count)]
        yield nodes
    finally:
        _remove(own)


def _made(own: str, bridges: list[str], number: int, third: int) -> Namespace:
    name = f"{own}n{number}"
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")
    for bridge, network in zip(bridges, (18, 19), strict=True):
        outside, inside = f"{bridge}{number}", f"eth{network}"
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        ip("link", "set", outside, "master", bridge)
        ip("link", "set", outside, "up")
        ip("-n", name, "addr", "add", f"198.{network}.{third}.{number + 2}/24", "dev", inside)
        ip("-n", name, "link", "set", inside, "up")
    addresses = [f"198.{network}.{third}.{number + 2}" for network in (18, 19)]
    return Namespace(name, number, f"{bridges[0]}{number}", bridges[0], *addresses)


def _free_network() -> int:
    used = ip("-o", "addr")
    first = os.getpid() % 250
    return next(third for third in (*range(first, 250), *range(first)) if f"198.18.{third}." not in used)


def sweep() -> None:
    """Remove what processes have left that do not run any more."""
    names = [line.split()[0] for line in ip("netns", "list").splitlines() if line]
    names += [line.split(": ")[1].split("@")[0] for line in ip("-o", "link").splitlines()]
    for name in names:
        found = re.match(rf"{PREFIX}(\d+)[nbc]", name)
        if found and not Path(f"/proc/{found[1]}").exists():
            _remove(f"{PREFIX}{found[1]}")


def _remove(own: str) -> None:
    """Remove the namespaces and links of one process, and what runs in them."""
    for line in ip("netns", "list").splitlines():
        name = line.split()[0] if line else ""
        if not name.startswith(f"{own}n"):
            continue
        for pid in ip("netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        ip("netns", "del", name)
    for line in ip("-o", "link").splitlines():
        link = line.split(": ")[1].split("@")[0]
        if link.startswith((f"{own}b", f"{own}c")):
            # A pair goes at once, and so do those of a namespace that is gone.
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("link", "del", link)
