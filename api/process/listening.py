"""The listening sockets of the service, and the maximum number of connections."""

import errno
import logging
import os
import resource
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
    """Yield a listening socket for each front end; the operating system spreads connections over them.

    Connections made before the service is ready wait for it. Raises StartError.
    """
    with ExitStack() as sockets:
        with _start_errors(settings.host, settings.port, "--port"):
            listeners = [sockets.enter_context(listener) for listener in _listeners(settings)]
        yield listeners


@contextmanager
def listening_for_probes(settings: Settings) -> Iterator[socket.socket | None]:
    """Yield the listening socket for probes; None if they have no separate port. Raises StartError."""
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
        hint = f"; name another port with {option}" if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"cannot listen on {host}, port {port}: {reason}{hint}") from None


def _listener(host: str, port: int) -> tuple[socket.socket, socket.AddressFamily]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # `localhost` may resolve to both IPv6 and IPv4. All callers try IPv4.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server((address[0], address[1]), family=family, backlog=_BACKLOG), family


def _listeners(settings: Settings) -> Iterator[socket.socket]:
    # First without reuse_port, which refuses another service's port even if that service shares it.
    alone, family = _listener(settings.host, settings.port)
    if settings.front_ends == 1:
        yield alone
        return
    host, port = alone.getsockname()[:2]
    alone.close()
    for _ in range(settings.front_ends):
        yield socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=True)


_log = logging.getLogger(__name__)

_LIMIT_MAX: Final = 65_536
"""The highest limit to set, because some child programs close every descriptor up to their limit."""
_OWN: Final = 160
"""The descriptors reserved for the process itself, including its listening socket and Ray's connections; two
thirds of them are usually in use."""
_OF_WORKER: Final = 4
"""The descriptors reserved for each detector worker; usually two are in use."""


def raise_limit() -> None:
    """Raise the soft limit to the hard limit, for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, _LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max(settings: Settings) -> int:
    """Return the maximum number of connections: the setting, or, with a warning, what descriptors allow.

    Some descriptors are reserved for the process itself, which could not activate detectors without them.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return settings.max_connections
    own = _OWN + _OF_WORKER * -(-settings.max_resident // settings.detectors_per_worker)
    room = max(soft - own, soft // 2, 1)
    if room < settings.max_connections:
        _log.warning(
            "at most %d connections are served at once, not %d: this process may have %d files open, %d of "
            "them for itself; see `ulimit -n`",
            room,
            settings.max_connections,
            soft,
            soft - room,
        )
    return min(room, settings.max_connections)
