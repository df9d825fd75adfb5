"""A front end in a process of its own: `serve --front-ends` starts several on one address."""

import asyncio
import ctypes
import dataclasses
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import uvloop

from api.http.app import Application
from api.observability import logs
from api.process.certificates import Certificates, certificates_of
from api.process.listening import StartError, connections_max
from api.server.hypercorn_config import request_bounds, serve, server_config
from api.server.limits import ConnectionLimit
from api.settings import Settings
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.memory_budget import MemoryBudget
from engine.runtime.front_end.scheduler_client import SchedulerClient, Unreachable
from engine.runtime.process.collector import settle
from engine.runtime.transport.link import Note
from engine.runtime.transport.link_client import LinkClient

_TALLY_S: Final = 0.5
"""The interval at which counts are sent. A front end that dies loses the counts of one interval."""
_TRIM_S: Final = 10.0
_TRIM_BYTES: Final = 64 * 1024 * 1024
_ACCEPTED_PER_TURN: Final = 32
"""The connections accepted in one iteration of the loop, each on its own descriptor of the listening socket.

The loop accepts one connection per descriptor. With a single descriptor, a new connection waits one iteration
for each one before it, and each iteration answers all busy callers: with 400, that takes some seconds.
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

    First, for `wait_s()` seconds, /readyz answers 503 so that load balancers notice, and each response closes
    its connection. Then no more connections are accepted, idle ones are closed, and requests in progress have
    `grace_s()` seconds to finish. The rest is refused.
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
        app.watch_certificate(lambda: certificates.stale)
        background.append(asyncio.create_task(certificates.follow(), name="certificate"))
    try:
        await serve(app, config, until_ended, limit, bounds=request_bounds(settings))
    finally:
        for task in background:
            task.cancel()
        if refusal is not None:
            refusal.cancel()


async def _report_regularly(app: Application) -> None:
    """Send this front end's counts to the scheduler, for the metrics pages of all front ends."""
    while True:
        await asyncio.sleep(_TALLY_S)
        with suppress(DetectorUnavailable):
            await app.report()


async def _trim_on(memory: MemoryBudget) -> None:
    """Return memory to the system whenever much of it has been released."""
    while True:
        await asyncio.sleep(_TRIM_S)
        if memory.take_fallen() >= _TRIM_BYTES:
            trim()


def trim() -> None:
    """Return all free pages of the C library to the system; takes about 10 ms for each 100 MiB.

    By itself, glibc returns only the top of its heap, so a front end that has read many large bodies at once
    would keep their memory. Other C libraries do not need this.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


READY: Final = "ready"
"""A front end's note that it serves requests."""
FAILED: Final = "failed"
"""A front end's note that it cannot serve, with the reason."""
LEAVING: Final = "leaving"
"""A front end's note that it is about to end, so that a replacement may be started."""
STOP: Final = "stop"
"""Tells a front end to end once the requests in progress are answered."""


def encode_settings(settings: Settings) -> bytes:
    """Encode settings for the standard input of a front end."""
    return msgspec.json.encode(dataclasses.asdict(settings), enc_hook=str)


def decode_settings(data: bytes) -> Settings:
    """Decode the settings of `encode_settings`."""
    return Settings(**msgspec.json.decode(data))


class FrontEndProcess:
    """Serves requests on a listening socket. It reaches the scheduler via the main process, over `link`."""

    def __init__(self, settings: Settings, link: socket.socket, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._stopping = asyncio.Event()
        self._lost = False
        runtime = settings.runtime_settings()
        self._link = link
        self._scheduler = SchedulerClient(runtime, self._connect, noted=self._noted, lost=self._on_loss)
        self._backend = Backend(runtime, self._scheduler, shared=True)

    async def run(self) -> None:
        """Serve until SIGTERM, a STOP from the main process, or the end of the link."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)
        try:
            await self._backend.start()
        except DetectorUnavailable:
            if self._lost:
                return
            raise
        try:
            certificates = certificates_of(self._settings)
        except StartError as error:
            # The main process logs it: this one would repeat it at each attempt.
            self._scheduler.note(FAILED, str(error).encode())
            await self._backend.close()
            return
        app = Application(self._settings, self._backend)
        self._scheduler.note(READY)
        await serve_on(
            self._listener,
            app,
            self._settings,
            certificates,
            until=self._until_stopped,
            wait_s=self._wait_s,
            grace_s=lambda: self._settings.shutdown_grace_s,
        )
        with suppress(DetectorUnavailable):
            await app.report()
        await self._backend.close()

    async def _connect(self) -> LinkClient:
        if self._lost:
            raise Unreachable("the main process has ended")
        return await LinkClient.over(self._link)

    async def _until_stopped(self) -> None:
        await self._stopping.wait()
        if not self._lost:
            self._scheduler.note(LEAVING)

    def _wait_s(self) -> float:
        return 0.0 if self._lost else self._settings.shutdown_wait_s

    def _noted(self, note: Note) -> None:
        if note.name == STOP:
            self._stopping.set()

    def _on_loss(self) -> None:
        """Stop, because without the main process there are no detectors."""
        self._lost = True
        self._stopping.set()


def main() -> None:
    """Run a front end. Settings come on standard input, link and listening socket as descriptors."""
    # Ctrl-C signals all processes of a terminal, but the main process decides when front ends end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    encoded = sys.stdin.buffer.read()
    if not encoded:
        # The main process has ended.
        return
    settings = decode_settings(encoded)
    logs.set_up(settings)
    link, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, link, listener))


async def _run(settings: Settings, link: socket.socket, listener: socket.socket) -> None:
    # Created inside the loop, because its parts need a running one.
    await FrontEndProcess(settings, link, listener).run()


if __name__ == "__main__":
    main()
