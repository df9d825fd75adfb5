"""Hypercorn, set up for this application."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import hypercorn.asyncio
import hypercorn.asyncio.run
from hypercorn.config import Config

from api.server.connection import PromptServer
from api.server.connection_limit import Crowd
from api.settings import Settings

REFUSALS_S: Final = 1.0
"""For the refusals of what has not finished at the end of the grace. What is left then gets a bare 500."""

_KEEP_ALIVE_REQUESTS_MAX: Final = 100_000
_CONNECTIONS: Final = 10_000
_BACKLOG: Final = 1024


async def serve(
    app: Any, config: Config, until: Callable[[], Awaitable[None]], crowd: Crowd | None = None
) -> None:
    """Serve the application until `until` returns. The crowd says how many connections there may be."""
    crowd = Crowd(_CONNECTIONS) if crowd is None else crowd
    # All that wait are accepted at once, before any of them can be cut.
    config.backlog = min(config.backlog, max(1, crowd.most // 4))
    hypercorn.asyncio.run.TCPServer = partial(PromptServer, crowd)  # type: ignore[assignment, attr-defined]

    async def until_ended() -> None:
        await until()
        crowd.end()

    await hypercorn.asyncio.serve(app, config, shutdown_trigger=until_ended)


def server_config(settings: Settings) -> Config:
    """Give Hypercorn's configuration; where to listen is for the caller to say."""
    config = Config()
    # The application logs requests itself, with what it knows of them and nothing that callers could forge.
    config.accesslog = None
    config.errorlog = "-"
    config.include_server_header = False
    config.keep_alive_timeout = settings.keep_alive_s
    config.keep_alive_max_requests = _KEEP_ALIVE_REQUESTS_MAX
    # Past this the server itself cuts off, without an envelope; up to it the application judges the headers.
    config.h11_max_incomplete_size = 4 * settings.max_header_bytes
    # It would end handlers that run longer; their time is bounded by the application's own deadline.
    config.read_timeout = None
    config.graceful_timeout = settings.shutdown_grace_s + REFUSALS_S
    config.backlog = _BACKLOG
    return config
