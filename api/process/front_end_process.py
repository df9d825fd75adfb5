"""A front end in a process of its own: `serve --front-ends` starts several on one address."""

import asyncio
import dataclasses
import signal
import socket
import sys
from contextlib import suppress
from typing import Final

import msgspec
import uvloop

from api.http.app import Application
from api.observability.log import logs
from api.process.certificates import certificates_of
from api.process.front_end import serve_on
from api.settings import Settings
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.scheduler_client import SchedulerClient, Unreachable
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.messages import Note

READY: Final = "ready"
"""A front end's note that it serves requests."""
LEAVING: Final = "leaving"
"""A front end's note that it is about to end, so that another one may be started."""
STOP: Final = "stop"
"""Tells a front end to end once the requests under way are answered."""


def encode_settings(settings: Settings) -> bytes:
    """Encode settings for the standard input of a front end."""
    return msgspec.json.encode(dataclasses.asdict(settings), enc_hook=str)


def decode_settings(data: bytes) -> Settings:
    """Decode the settings of `encode_settings`."""
    return Settings(**msgspec.json.decode(data))


class FrontEndProcess:
    """Serves requests on a listening socket. The main process, over `link`, gives access to the scheduler."""

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
        app = Application(self._settings, self._backend)
        self._scheduler.note(READY)
        await serve_on(
            self._listener,
            app,
            self._settings,
            certificates_of(self._settings),
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
        """Stop: without the main process there are no detectors."""
        self._lost = True
        self._stopping.set()


def main() -> None:
    """Run a front end: settings come on standard input, link and listening socket as descriptors."""
    # Ctrl-C signals all processes of a terminal, but the main process decides when to end.
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
    # Inside the loop, since its parts need a running one.
    await FrontEndProcess(settings, link, listener).run()


if __name__ == "__main__":
    main()
