"""A front end: serves the application on a listening socket, and shuts it down gracefully."""

import asyncio
import ctypes
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from api.http.app import Application
from api.process.certificates import Certificates
from api.process.descriptors import connections_max
from api.server.connection_limit import ConnectionLimit
from api.server.hypercorn_config import request_bounds, serve, server_config
from api.settings import Settings
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.front_end.memory_budget import MemoryBudget
from engine.runtime.process.collector import settle

_TALLY_S: Final = 0.5
"""The interval at which counts are sent. A front end that dies loses those of one interval."""
_TRIM_S: Final = 10.0
_TRIM_BYTES: Final = 64 * 1024 * 1024
_ACCEPTED_PER_TURN: Final = 32
"""The connections that one turn of the loop accepts, each on its own descriptor of the listening socket.

The loop accepts one for each descriptor. With a single descriptor, a new connection waits for as many turns
as there are others before it, and each turn answers all callers that are busy: with 400, for some seconds.
"""


async def serve_on(
    listener: socket.socket,
    app: Application,
    settings: Settings,
    certificates: Certificates | None = None,
    *,
    until: Callable[[], Awaitable[None]],
    wait_s: Callable[[], float],
    grace_s: Callable[[], float],
) -> None:
    """Serve until `until` returns, then shut down in steps.

    First, for `wait_s()` seconds, /readyz answers 503 for load balancers to notice, and each response closes
    its connection. Then no more connections are accepted, idle ones are closed, and requests under way have
    `grace_s()` seconds to finish. Those that have not finished by then are refused.
    """
    config = server_config(settings, None if certificates is None else certificates.context)
    limit = ConnectionLimit(connections_max(settings), settings.ahead_bytes_max, app.budget)
    # The server takes over the descriptors and closes them.
    doubles = [listener.dup().detach() for _ in range(_ACCEPTED_PER_TURN - 1)]
    config.bind = [f"fd://{descriptor}" for descriptor in (listener.detach(), *doubles)]

    refusal: asyncio.TimerHandle | None = None

    async def until_ended() -> None:
        nonlocal refusal
        await until()
        app.announce_shutdown()
        limit.leave()
        await asyncio.sleep(wait_s())
        app.end_streams()
        refusal = asyncio.get_running_loop().call_later(grace_s(), app.refuse_all)

    settle()
    background = [asyncio.create_task(_trim_on(app.budget)), asyncio.create_task(_report_regularly(app))]
    if certificates is not None:
        background.append(asyncio.create_task(certificates.follow(), name="certificate"))
    try:
        await serve(app, config, until_ended, limit, bounds=request_bounds(settings))
    finally:
        for task in background:
            task.cancel()
        if refusal is not None:
            refusal.cancel()


async def _report_regularly(app: Application) -> None:
    """Tell the scheduler what this front end counts, for the metrics that other front ends give."""
    while True:
        await asyncio.sleep(_TALLY_S)
        with suppress(DetectorUnavailable):
            await app.report()


async def _trim_on(memory: MemoryBudget) -> None:
    """Return memory to the system after much was held at once."""
    while True:
        await asyncio.sleep(_TRIM_S)
        if memory.take_fallen() >= _TRIM_BYTES:
            trim()


def trim() -> None:
    """Return all free pages of the C library to the system; takes about 10 ms for each 100 MiB.

    glibc by itself returns only the top of its heap, so a front end that has read many large bodies at once
    would keep their memory. Other C libraries do not need this.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
