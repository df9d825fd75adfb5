"""The routes to detectors, for front ends."""

from typing import Optional

import msgspec


class Address(msgspec.Struct, frozen=True):
    """The address of a process's listener, and the token that it demands."""

    place: str | tuple[str, int]
    """The path of a Unix socket, or IP address and port."""
    token: bytes = b""
    """Empty for a Unix socket, whose permissions decide who connects."""
    tls: bool = False
    """Whether the connection is encrypted."""
    node: str = ""
    """The Ray node of the process."""
    far: Optional["Address"] = None
    """The address for callers on other nodes, if it is another one."""

    def seen_from(self, node: str) -> "Address":
        """Return the address for callers on a Ray node."""
        return self if self.far is None or node == self.node else self.far

    @property
    def host(self) -> str:
        """The host that callers on other nodes use; empty if there is none."""
        place = (self.far or self).place
        return "" if isinstance(place, str) else place[0]

    def __repr__(self) -> str:
        """Omit the token, which is a secret."""
        return f"Address({self.place!r})"


class Route(msgspec.Struct, frozen=True):
    """The worker in which a detector is active, and the epoch of that activation."""

    worker: str
    address: Address
    epoch: int
