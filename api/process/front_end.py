"""A front end: the application, served on a listening socket until it is to end, and then drained."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from api.http.app import Application
from api.http.body.memory import BodyMemory
from api.process.allocator import trim
from api.process.descriptors import connections_max
from api.server.connection_limit import Crowd
from api.server.hypercorn_config import serve, server_config
from api.settings import Settings
from engine.runtime.process.collector import settle

_TRIM_S: Final = 10.0
_TRIM_BYTES: Final = 64 * 1024 * 1024


async def serve_on(
    listener: socket.socket,
    app: Application,
    settings: Settings,
    *,
    until: Callable[[], Awaitable[None]],
    wait_s: Callable[[], float],
    grace_s: Callable[[], float],
) -> None:
    """Serve until `until` returns, and for `wait_s()` seconds more, in which /readyz says so.

    That is for load balancers to notice. From then on every reply is the last on its connection and says
    so: callers go elsewhere and lose nothing. At the end no more connections are taken, idle ones are closed,
    and what is under way has `grace_s()` seconds to finish. What has not by then is refused.
    """
    config = server_config(settings)
    crowd = Crowd(connections_max(settings))
    # Its own handler would say everything twice.
    config.errorlog = logging.getLogger("hypercorn.error")
    # The server takes the descriptor over, and closes it.
    config.bind = [f"fd://{listener.detach()}"]

    refusal: asyncio.TimerHandle | None = None

    async def until_ended() -> None:
        nonlocal refusal
        await until()
        app.announce_shutdown()
        crowd.leave()
        await asyncio.sleep(wait_s())
        app.end_streams()
        refusal = asyncio.get_running_loop().call_later(grace_s(), app.refuse_all)

    settle()
    trimming = asyncio.create_task(_trim_on(app.memory))
    try:
        await serve(app, config, until_ended, crowd)
    finally:
        trimming.cancel()
        if refusal is not None:
            refusal.cancel()


async def _trim_on(memory: BodyMemory) -> None:
    """Give memory back to the system after many bodies were read at once: their pieces were in the heap."""
    while True:
        await asyncio.sleep(_TRIM_S)
        if memory.take_fallen() >= _TRIM_BYTES:
            trim()
