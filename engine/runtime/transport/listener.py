"""The listening socket of a worker, for any number of processes of its user, or that have its token."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from typing import Final, Self

from engine.runtime.contract.requests.calls import Address
from engine.runtime.process.temporary import TemporaryFolder
from engine.runtime.transport.connecting import TokenHandshake
from engine.runtime.transport.link import Link
from engine.runtime.transport.tls import server_context

_PREFIX: Final = "rd-actor-"
_SOCKET: Final = "batches"
_SOCKET_MODE: Final = 0o600
_WAITING_MAX: Final = 128
_TOKEN_BYTES: Final = 32
_TOKEN_S: Final = 2.0
"""How long a connection has to send the token."""


class Listener:
    """Accepts connections, and gives each that sends the token a link."""

    def __init__(self, address: Address, server: asyncio.Server, folder: TemporaryFolder | None) -> None:
        self.address = address
        self._server = server
        self._folder = folder

    @classmethod
    async def start(
        cls,
        link: Callable[[], Link],
        *,
        host: str | None = None,
        tls: bool = False,
        token_s: float = _TOKEN_S,
    ) -> Self:
        """Listen on TCP at `host`, or on a Unix socket if it is None. Raises OSError.

        Only the user and root can reach a Unix socket, whose folder has mode 0700, so it needs no token.
        """
        token = b"" if host is None else secrets.token_bytes(_TOKEN_BYTES)

        def protocol() -> TokenHandshake:
            return TokenHandshake(token, link, token_s)

        loop = asyncio.get_running_loop()
        if host is not None:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, 0), family=family, backlog=_WAITING_MAX)
            context = server_context() if tls else None
            server = await loop.create_server(protocol, sock=listening, ssl=context)
            return cls(Address((host, listening.getsockname()[1]), token, tls), server, None)
        folder = TemporaryFolder(_PREFIX, frozenset({_SOCKET}))
        try:
            path = str(folder.path / _SOCKET)
            server = await loop.create_unix_server(protocol, path, backlog=_WAITING_MAX)
            os.chmod(path, _SOCKET_MODE)  # noqa: PTH101 -- a path here is what sockets take, a string
        except BaseException:
            folder.remove()
            raise
        return cls(Address(path), server, folder)

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()
        if self._folder is not None:
            self._folder.remove()
