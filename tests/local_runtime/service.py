"""The runtime without Ray, in one process.

`local_backend` yields a real Backend over the real actors, directory, queues and workers, all in this
process.
"""

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine.runtime.contract.requests.calls import Address
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.scheduler_client import ABANDONABLE, SchedulerClient, Unreachable
from engine.runtime.scheduler.scheduler import Scheduler
from engine.runtime.scheduler.scheduler_service import SchedulerService
from engine.runtime.transport.link import Link, Note, responses
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.server_connection import ServerConnection
from snapshots.data_folder.identity import begin_folder
from snapshots.files import Files, wall_clock_us
from tests.local_runtime.actors import LocalActors, LocalNodes
from tests.local_runtime.catalogues import LocalCatalogues
from tests.local_runtime.connections import Pipe


class LocalService:
    """A Backend with all its parts, connected like processes, and accessible to a test."""

    def __init__(
        self,
        settings: RuntimeSettings,
        *,
        files: Files | None = None,
        nodes: LocalNodes | None = None,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self.settings = settings
        self.nodes = nodes
        self.actors = LocalActors(settings, files=files, nodes=nodes)
        self.actors.now_us = now_us
        self.directories = LocalCatalogues(settings, files=files)
        self.begin()
        asks = SchedulerClient(settings, self._connect, end=self._end)
        self.backend = Backend(settings, asks, connect=self._connect_to_worker)

    def begin(self) -> None:
        """Start a scheduler, to which the backend connects next."""
        client, now_us = self.directories.client(), self.actors.now_us
        nodes = self.nodes or LocalNodes()
        self.scheduler = Scheduler(self.settings, self.actors, client, nodes=nodes, now_us=now_us)
        self.actors.term = lambda: self.scheduler.catalogue.term
        self._served = SchedulerService(
            self.scheduler,
            folder=str(self.settings.data),
            shared_settings={},
            abandoned_s=self.settings.abandoned_s,
            ended=lambda: None,
        )
        self.connected: list[LinkClient] = []

    async def _connect(self) -> LinkClient:
        client = LinkClient(Link(responses))
        Pipe.between(client.link, self._served.link())
        self.connected.append(client)
        await client.ask("open", str, "here")
        return client

    async def _connect_to_worker(self, address: Address) -> LinkClient:
        return await self.actors.connect(address)

    async def _end(self) -> None:
        """There is nothing to end."""


@asynccontextmanager
async def local_service(
    folder: Path,
    *,
    files: Files | None = None,
    nodes: LocalNodes | None = None,
    now_us: Callable[[], int] = wall_clock_us,
    **settings: Any,
) -> AsyncIterator[LocalService]:
    """Yield a started service over `folder`, and close it. `settings` are those of RuntimeSettings."""
    # Its workers are in this process, which may be larger than one worker should be after thousands of tests.
    settings = {"actor_bytes_max": 2**40, **settings}
    chosen = dataclasses.replace(
        RuntimeSettings(data=folder, **settings), folder_id=begin_folder(folder, lock_wait_s=5)
    )
    service = LocalService(chosen, files=files, nodes=nodes, now_us=now_us)
    await service.backend.start()
    try:
        yield service
    finally:
        await service.backend.close()


@dataclasses.dataclass(slots=True)
class FrontEnd:
    """A Backend that uses a scheduler in another process, here in the same one."""

    backend: Backend
    asks: SchedulerClient
    serves: ServerConnection
    notes: list[Note] = dataclasses.field(default_factory=list)
    """Messages from the front end."""
    told: list[Note] = dataclasses.field(default_factory=list)
    """Messages to the front end."""
    lost: list[str] = dataclasses.field(default_factory=list)
    """Which end noticed that the other is gone."""


@asynccontextmanager
async def front_end(service: LocalService, **settings: Any) -> AsyncIterator[FrontEnd]:
    """Yield a front end of a service, over a pair of sockets, and close it."""
    chosen = dataclasses.replace(service.settings, **settings)
    ours, theirs = socket.socketpair()
    notes: list[Note] = []
    told: list[Note] = []
    lost: list[str] = []
    serves = ServerConnection(
        service.backend.scheduler.relay(),
        abandonable=ABANDONABLE,
        noted=notes.append,
        lost=lambda: lost.append("server"),
    )
    await serves.start(ours)
    connected: list[LinkClient] = []

    async def connect() -> LinkClient:
        if connected:
            raise Unreachable("the main process has ended")
        connected.append(await LinkClient.over(theirs))
        return connected[0]

    asks = SchedulerClient(chosen, connect, noted=told.append, lost=lambda: lost.append("front end"))
    backend = Backend(chosen, asks, shared=True, connect=service.actors.connect)
    await backend.start()
    try:
        yield FrontEnd(backend, asks, serves, notes, told, lost)
    finally:
        await backend.close()
        serves.close()


@asynccontextmanager
async def local_backend(folder: Path, **settings: Any) -> AsyncIterator[Backend]:
    """Yield a started Backend over `folder`, and close it. `settings` are those of RuntimeSettings."""
    async with local_service(folder, **settings) as service:
        yield service.backend


async def until(condition: Callable[[], object]) -> None:
    """Return once a condition holds that no event reports. Fail after a minute."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- what is waited for has no event
            await asyncio.sleep(0.001)
