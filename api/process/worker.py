"""A front end in a process of its own: what `serve --workers` starts several of, on one address."""

import asyncio
import dataclasses
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from api.http.app import Application, create_app
from api.observability import logs
from api.process.front_end import serve_on
from api.server.hypercorn_config import REFUSALS_S
from api.settings import Settings
from api.settings import settings as all_settings
from engine.runtime.broker.fleet import Fleet
from engine.runtime.broker.messages import Note
from engine.runtime.broker.remote_broker import RemoteHosting
from engine.runtime.contract.errors import DetectorUnavailable

READY: Final = "ready"
"""From a front end: it serves."""
LEAVING: Final = "leaving"
"""From a front end: it is about to end, and another may take its place."""
STOP: Final = "stop"
"""To a front end: end, once what is under way is answered."""
LOOK: Final = "look"
"""To a front end: tokens have changed through another one."""

_LATER_S: Final = REFUSALS_S / 2
"""Whoever hosts the detectors refuses what has not finished earlier, and can say what became of it."""
_TALLY_S: Final = 0.5
"""A front end that dies takes what it counted for so long with it."""


def encode_settings(settings: Settings) -> bytes:
    """Give settings as a front end reads them from its standard input."""
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return msgspec.json.encode(values, enc_hook=str)


def decode_settings(data: bytes) -> Settings:
    """Give back what `encode_settings` took."""
    values: dict[str, Any] = msgspec.json.decode(data)
    for setting in all_settings():
        if setting.kind is Path and values[setting.name] is not None:
            values[setting.name] = Path(values[setting.name])
    return Settings(**values)


class Worker:
    """Serves requests that come to a listening socket, and has whoever is at the other end of `link` host."""

    def __init__(self, settings: Settings, link: socket.socket, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._stopping = asyncio.Event()
        self._lost = False
        runtime = settings.runtime_settings()
        self._hosting = RemoteHosting(runtime, link, self._noted, self._on_loss)
        self._fleet = Fleet(runtime, self._hosting, shared=True)

    async def run(self) -> None:
        """Serve until SIGTERM, a word from the other end, or its end."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)
        await self._fleet.start()
        app = create_app(self._settings, self._fleet)
        tallying = asyncio.create_task(_tally_on(app))
        self._hosting.note(READY)
        await serve_on(
            self._listener,
            app,
            self._settings,
            until=self._until_stopped,
            wait_s=self._wait_s,
            grace_s=lambda: self._settings.shutdown_grace_s + _LATER_S,
        )
        tallying.cancel()
        with suppress(DetectorUnavailable):
            await app.tally()
        await self._fleet.close()

    async def _until_stopped(self) -> None:
        await self._stopping.wait()
        if not self._lost:
            self._hosting.note(LEAVING)

    def _wait_s(self) -> float:
        return 0.0 if self._lost else self._settings.shutdown_wait_s

    def _noted(self, note: Note) -> None:
        if note.name == STOP:
            self._stopping.set()
        elif note.name == LOOK:
            self._fleet.look_again()

    def _on_loss(self) -> None:
        """Take note that nobody hosts the detectors any more: there is nothing to be served."""
        self._lost = True
        self._stopping.set()


async def _tally_on(app: Application) -> None:
    while True:
        await asyncio.sleep(_TALLY_S)
        with suppress(DetectorUnavailable):
            await app.tally()


def main() -> None:
    """Be a front end: its settings come on standard input, link and listening socket as descriptors."""
    # Ctrl-C goes to all processes of a terminal. The one that started this one says when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = decode_settings(sys.stdin.buffer.read())
    logs.set_up(settings)
    link, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, link, listener))


async def _run(settings: Settings, link: socket.socket, listener: socket.socket) -> None:
    # Within the loop, for it is made of parts that belong to one.
    await Worker(settings, link, listener).run()


if __name__ == "__main__":
    main()
