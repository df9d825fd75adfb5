"""The listening sockets of the service, all on one address."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from api.settings import Settings

_BACKLOG: Final = 1024


class StartError(Exception):
    """The service cannot start; the message says why."""


@contextmanager
def listening(settings: Settings) -> Iterator[list[socket.socket]]:
    """Yield a listening socket for each front end; the system spreads connections over them.

    Connections made before the service is up wait for it. Raises StartError.
    """
    with ExitStack() as sockets:
        try:
            listeners = [sockets.enter_context(listener) for listener in _listeners(settings)]
        except OSError as error:
            reason = (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower()
            hint = "; name another one with --port" if error.errno == errno.EADDRINUSE else ""
            message = f"cannot listen on {settings.host}, port {settings.port}: {reason}{hint}"
            raise StartError(message) from None
        yield listeners


def _listeners(settings: Settings) -> Iterator[socket.socket]:
    found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # `localhost` may resolve to IPv6 and IPv4. All callers try IPv4.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    host, port = address[:2]
    # Without reuse_port first: this refuses a port of another service even if that one shares it.
    alone = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    if settings.front_ends == 1:
        yield alone
        return
    port = alone.getsockname()[1]
    alone.close()
    for _ in range(settings.front_ends):
        yield socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=True)
