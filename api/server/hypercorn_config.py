"""The configuration of Hypercorn for this application."""

import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import hypercorn.asyncio
import hypercorn.asyncio.run
from hypercorn.config import Config

from api.server.connection import HEAD_S, Connection
from api.server.exchange import App
from api.server.limits import ConnectionLimit, RequestBounds
from api.server.requests import TARGET_BYTES_MAX
from api.settings import Settings

REFUSALS_S: Final = 1.0
"""The time after the grace period for refusing unfinished requests. Connections left then are cut off."""

_KEEP_ALIVE_REQUESTS_MAX: Final = 100_000
_CONNECTIONS: Final = 10_000
_BACKLOG: Final = 1024


async def serve(
    app: App,
    config: Config,
    until: Callable[[], Awaitable[None]],
    limit: ConnectionLimit | None = None,
    *,
    bounds: RequestBounds,
) -> None:
    """Serve the application until `until` returns, within limits on connections and on requests."""
    limit = ConnectionLimit(_CONNECTIONS) if limit is None else limit
    # The whole backlog is accepted at once, before any of its connections can be evicted.
    config.backlog = min(config.backlog, max(1, limit.connections_max // 4))
    # Hypercorn has no other way to replace the class that serves a connection.
    hypercorn.asyncio.run.TCPServer = partial(Connection, limit, app, bounds)  # type: ignore[assignment, attr-defined]

    async def until_ended() -> None:
        await until()
        limit.end()

    await hypercorn.asyncio.serve(app, config, shutdown_trigger=until_ended)


def request_bounds(settings: Settings) -> RequestBounds:
    """Return the bounds of requests. The application itself checks the size of the headers."""
    head_bytes_max = TARGET_BYTES_MAX + settings.max_header_bytes
    return RequestBounds(head_bytes_max, settings.max_discard_bytes, settings.deadline_s)


class _Config(Config):
    """A configuration with a given TLS context."""

    context: ssl.SSLContext | None = None

    @property
    def ssl_enabled(self) -> bool:
        return self.context is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self.context


def server_config(settings: Settings, context: ssl.SSLContext | None = None) -> Config:
    """Return Hypercorn's configuration, except the address to listen on; with a context, it speaks TLS."""
    config = _Config()
    config.context = context
    config.ssl_handshake_timeout = HEAD_S
    # The application logs requests itself, without text that callers could forge.
    config.accesslog = None
    # Hypercorn's own handler would log everything twice.
    config.errorlog = logging.getLogger("hypercorn.error")
    config.include_server_header = False
    config.keep_alive_timeout = settings.keep_alive_s
    config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS_MAX
    config.graceful_timeout = settings.shutdown_grace_s + REFUSALS_S
    config.backlog = _BACKLOG
    return config
