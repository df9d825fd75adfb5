"""Where detectors are, as front ends are told."""

import msgspec


class Address(msgspec.Struct, frozen=True):
    """The address of a worker's listener, and the token that it accepts."""

    place: str | tuple[str, int]
    """The path of a Unix socket, or IP address and port."""
    token: bytes
    tls: bool = False
    """Whether the connection is encrypted."""

    def __repr__(self) -> str:
        """Omit the token, which is a secret."""
        return f"Address({self.place!r})"


class Route(msgspec.Struct, frozen=True):
    """The worker in which a detector is active, and the epoch of that activation."""

    worker: str
    address: Address
    epoch: int
