"""Starts the service and ends it: socket, Ray, fleet, front end, signals, draining."""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import uvloop
from engine.runtime.fleet import Fleet
from hypercorn.asyncio import serve

from api.app import Application, create_app
from api.server import server_config
from api.settings import Settings
from engine.runtime import cluster
from snapshots.errors import StorageError

_BACKLOG: Final = 1024


class StartError(Exception):
    """The service cannot start; the message says what is in the way."""


@dataclass(frozen=True, slots=True)
class Running:
    """The service, once it answers."""

    url: str
    token: str | None
    """The first token, where one was minted or is set; None where the data folder has tokens already."""
    minted: bool
    """Whether that token is new, and shown here for the only time."""


Work = Callable[[Running], Awaitable[bool]]
"""What is done once the service answers; gives whether the service is to go on."""


def run(settings: Settings, work: Work) -> None:
    """Serve until SIGTERM, SIGINT or the end of `work`, then bring everything to the disk. Raises StartError.

    The order matters. The socket comes first, since a port in use is the commonest obstacle and found at
    once; the signal handlers come last, since Ray installs its own when it starts.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with (
        _terminated_as_interrupted(),
        suppress(KeyboardInterrupt),
        _listening(settings) as listener,
        _ray(settings.ray_address),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve(settings, listener, work))


async def _serve(settings: Settings, listener: socket.socket, work: Work) -> None:
    stopping = _stop_on_signals()
    async with _fleet(settings) as fleet:
        if stopping.is_set():
            return
        running = await _running(settings, listener, fleet)
        app = create_app(settings, fleet)
        config = server_config(settings)
        # The server takes the descriptor over, and closes it.
        config.bind = [f"fd://{listener.detach()}"]

        async def until_stopped() -> None:
            await _until_stopped(work(running), stopping)
            await _drain(app, fleet, settings)

        await serve(app, config, shutdown_trigger=until_stopped)


async def _until_stopped(work: Awaitable[bool], stopping: asyncio.Event) -> None:
    """Do the work, and wait for a signal unless the work says that it is done with the service."""
    working = asyncio.ensure_future(work)
    signalled = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({working, signalled}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() and await working:
            await signalled
    finally:
        working.cancel()
        signalled.cancel()


async def _drain(app: Application, fleet: Fleet, settings: Settings) -> None:
    """Let load balancers notice, while requests are still served; then take no more."""
    app.announce_shutdown()
    await asyncio.sleep(settings.shutdown_wait_s)
    fleet.drain()


async def _running(settings: Settings, listener: socket.socket, fleet: Fleet) -> Running:
    """Give the address and the first credential: the one that is set, or a new one where there is none."""
    host, port = listener.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if settings.bootstrap_token is not None:
        return Running(url, settings.bootstrap_token, minted=False)
    if fleet.tokens_exist():
        return Running(url, None, minted=False)
    return Running(url, (await fleet.mint_token()).token, minted=True)


def _stop_on_signals() -> asyncio.Event:
    """Give the event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


@asynccontextmanager
async def _fleet(settings: Settings) -> AsyncIterator[Fleet]:
    """Give the started fleet; at the end every awake detector is saved."""
    fleet = Fleet(settings.runtime_settings())
    try:
        await fleet.start()
    except StorageError as error:
        await fleet.close()
        raise StartError(str(error)) from None
    try:
        yield fleet
    finally:
        await fleet.close()


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """Give a listening socket. Who connects before the service is up waits for it. Raises StartError."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # `localhost` may stand for two addresses, of which callers try the older one at least.
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StartError(f"cannot listen on {settings.host}, port {settings.port}: {reason}") from None
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def _ray(address: str) -> Iterator[None]:
    """Keep Ray started, or the cluster at `address` joined. Raises StartError."""
    try:
        cluster.start(address)
    except cluster.ClusterError as error:
        raise StartError(str(error)) from None
    try:
        yield
    finally:
        cluster.stop()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Have SIGTERM end what happens before and after serving just as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
