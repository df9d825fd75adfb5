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
        with _start_errors(settings.host, settings.port, "--port"):
            listeners = [sockets.enter_context(listener) for listener in _listeners(settings)]
        yield listeners


@contextmanager
def listening_for_probes(settings: Settings) -> Iterator[socket.socket | None]:
    """Yield the listening socket for probes, None if they have no port of their own. Raises StartError."""
    if not settings.probe_port:
        yield None
        return
    host = settings.metrics_host or settings.host
    with _start_errors(host, settings.probe_port, "--probe-port"):
        listener, _ = _listener(host, settings.probe_port)
    with listener:
        yield listener


def url_at(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL of a service that listens on this IPv4 or IPv6 address."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextmanager
def _start_errors(host: str, port: int, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower()
        hint = f"; name another one with {option}" if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"cannot listen on {host}, port {port}: {reason}{hint}") from None


def _listener(host: str, port: int) -> tuple[socket.socket, socket.AddressFamily]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # `localhost` may resolve to IPv6 and IPv4. All callers try IPv4.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server((address[0], address[1]), family=family, backlog=_BACKLOG), family


def _listeners(settings: Settings) -> Iterator[socket.socket]:
    # Without reuse_port first: this refuses a port of another service even if that one shares it.
    alone, family = _listener(settings.host, settings.port)
    if settings.front_ends == 1:
        yield alone
        return
    host, port = alone.getsockname()[:2]
    alone.close()
    for _ in range(settings.front_ends):
        yield socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=True)
