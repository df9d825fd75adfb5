"""A front end's channels to detectors, and its connections to workers.

A front end knows only the route of a detector. It asks the scheduler for the route when it has none, when a
worker answers that the detector has moved, and when a connection ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from engine.runtime.concurrency.background import cancel
from engine.runtime.contract.errors import no_such_detector
from engine.runtime.contract.requests.calls import LEFT, Address, Route
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.detector_channel import DetectorChannel, Locate
from engine.runtime.front_end.memory_budget import MemoryBudget
from engine.runtime.transport.link import Note
from engine.runtime.transport.link_client import LinkClient

Connect = Callable[[Address], Awaitable[LinkClient]]

_CHANNELS_KEPT: Final = 1_000
_LOOK_S: Final = 0.01
_CHECKS_PER_TIMEOUT: Final = 4


class Channels(dict[str, DetectorChannel]):
    """The channels to detectors, by id, made on first access. For one event loop."""

    def __init__(
        self,
        settings: RuntimeSettings,
        locate: Locate,
        connect: Connect,
        memory: MemoryBudget,
        waiting_for_slots: Callable[[], int] = lambda: 0,
    ) -> None:
        """`waiting_for_slots` returns how many detectors wait for an activation slot."""
        self._settings = settings
        self._locate = locate
        self._connect = connect
        self._memory = memory
        self._waiting_for_slots = waiting_for_slots
        self._clients: dict[str, LinkClient] = {}
        """The connections to workers, by the workers' names."""
        self._connecting: dict[str, asyncio.Task[LinkClient]] = {}
        self._next_check: asyncio.TimerHandle | None = None
        self._users: dict[LinkClient, dict[int, DetectorChannel]] = {}
        """The channels to the detectors of a worker, by the epochs of their activations."""
        self._loop = asyncio.get_running_loop()
        self._channels_max = self._channels_kept = max(_CHANNELS_KEPT, 2 * settings.max_resident)
        self._check_s = settings.node_timeout_s / _CHECKS_PER_TIMEOUT

    def __missing__(self, detector_id: str) -> DetectorChannel:
        """Make the channel to a detector."""
        if len(self) >= self._channels_max:
            # Idle channels are dropped; the next call makes a new one.
            for key in [key for key, channel in self.items() if not channel.busy]:
                del self[key]
            self._channels_max = max(self._channels_kept, 2 * len(self))
        if self._next_check is None:
            self._check_routes()
        channel = self[detector_id] = DetectorChannel(
            detector_id,
            self._settings,
            self._locate,
            self._reach,
            self._memory,
            waiting_for_slots=self._waiting_for_slots,
        )
        return channel

    def waiting(self) -> tuple[int, float]:
        """Return the number of unanswered requests, and how long the oldest unsent one has waited."""
        busy = [channel for channel in self.values() if channel.busy]
        waiting_s = max((channel.waiting_s for channel in busy), default=0.0)
        return sum(channel.unanswered for channel in busy), waiting_s

    def deleted(self, detector_id: str) -> None:
        """Refuse the requests that wait for a detector with 1200."""
        if (channel := self.get(detector_id)) is not None:
            channel.refuse_waiting(lambda: no_such_detector(detector_id))

    def refuse_all(self) -> None:
        """Refuse all waiting and running requests, because the time to serve them is over."""
        for channel in self.values():
            channel.refuse_all()

    async def shut_down(self) -> None:
        """Wait at most `shutdown_s` until waiting requests are answered, then refuse the rest."""
        until_s = self._loop.time() + self._settings.shutdown_s
        while any(channel.busy for channel in self.values()) and self._loop.time() < until_s:  # noqa: ASYNC110 -- rare
            await asyncio.sleep(_LOOK_S)
        for channel in self.values():
            channel.refuse_waiting()

    async def close(self) -> None:
        await cancel(self._connecting.values())
        for client in list(self._clients.values()):
            client.close()
        if self._next_check is not None:
            self._next_check.cancel()

    def _check_routes(self) -> None:
        """Check the routes of channels whose workers are slow to answer, periodically."""
        before_s = self._loop.time() - 2 * self._check_s
        for channel in self.values():
            channel.check_route(before_s)
        self._next_check = self._loop.call_later(self._check_s, self._check_routes)

    async def _reach(self, route: Route, channel: DetectorChannel) -> LinkClient:
        """Return the connection to a worker. Raises OSError."""
        client = self._clients.get(route.worker)
        if client is None:
            connecting = self._connecting.get(route.worker)
            if connecting is None:
                connecting = self._connecting[route.worker] = self._loop.create_task(self._connect_to(route))
            # Others may wait for the same connection.
            client = await asyncio.shield(connecting)
        self._users.setdefault(client, {})[route.epoch] = channel
        return client

    async def _connect_to(self, route: Route) -> LinkClient:
        try:
            client = await self._connect(route.address)
        finally:
            del self._connecting[route.worker]
        self._clients[route.worker] = client
        client.room = self._room
        client.noted = lambda note: self._noted(client, note)
        client.ended = lambda: self._ended(route.worker, client)
        return client

    def _room(self, bytes_: int, fetch: Callable[[], None]) -> Callable[[], None]:
        # While a message is decoded, its bytes are in memory twice.
        return self._memory.answer(2 * bytes_, fetch).release

    def _noted(self, client: LinkClient, note: Note) -> None:
        if note.name == LEFT:
            epoch = int(note.body)
            channel = self._users.get(client, {}).pop(epoch, None)
            if channel is not None:
                channel.left(epoch)

    def _ended(self, worker: str, client: LinkClient) -> None:
        self._users.pop(client, None)
        if self._clients.get(worker) is client:
            del self._clients[worker]
