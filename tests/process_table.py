"""The processes of a running service and the sockets they listen on, read from the kernel."""

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_LISTEN = "0A"
_OTHER_TITLES = ("ray::DirectoryActor", "ray::DashboardAgent", "ray::RuntimeEnvAgent")


class Listener(NamedTuple):
    """A socket that accepts connections or datagrams."""

    pid: int
    protocol: str
    address: str
    port: int


def parents() -> dict[int, int]:
    """Return the parent of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The second field is the program's name in parentheses, and may contain any characters.
            found[int(path.parent.name)] = int(path.read_bytes().rpartition(b")")[2].split()[1])
    return found


def family(pid: int) -> set[int]:
    """Return a process and all its descendants."""
    found, new, parent_of = set[int](), {pid}, parents()
    while new:
        found |= new
        new = {child for child, parent in parent_of.items() if parent in found} - found
    return found


def workers(pid: int) -> list[int]:
    """Return the detector workers below a process.

    Ray titles a worker with the names of its detectors, or with its class while it has none.
    """
    return sorted(
        one
        for one in family(pid)
        if (title := command(one)).startswith("ray::") and not title.startswith(_OTHER_TITLES)
    )


def holders(is_it: Callable[[Path], bool]) -> set[int]:
    """Return the processes that have a matching file open."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for entry in (process / "fd").iterdir():
                # It may have been closed in the meantime, like that of this listing.
                with contextlib.suppress(OSError):
                    if is_it(entry.readlink()):
                        found.add(int(process.name))
    return found


def command(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
    except OSError:
        return ""


def environment(pid: int) -> str:
    """Return the environment with which a process was started; empty if it has ended."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return ""


def listeners(pids: set[int]) -> list[Listener]:
    """Return the TCP and UDP sockets of processes to which others can send."""
    owners = {inode: pid for pid in pids for inode in _sockets(pid)}
    found = []
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{protocol}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[9] in owners and (fields[3] == _LISTEN or protocol.startswith("udp")):
                place, _, port = fields[1].partition(":")
                found.append(Listener(owners[fields[9]], protocol, _address(place), int(port, 16)))
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found


def _address(place: str) -> str:
    """Return an address that the kernel shows as words of 32 bits, in the machine's byte order."""
    words = [int(place[start : start + 8], 16) for start in range(0, len(place), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    parsed = ipaddress.ip_address(
        socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
    )
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
