"""Workers as Ray actors: started, found again, called and ended."""

import asyncio
import dataclasses
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import ray
from ray.exceptions import RayError

from engine.runtime.cluster.actors.detector_actor import DetectorActor
from engine.runtime.cluster.ray_calls import OPTIONS, WATCH, RayActor, create_actor, first_line
from engine.runtime.cluster.ray_nodes import nodes_of_actors, not_on, on_node
from engine.runtime.concurrency.background import Background
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.requests.calls import Address
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.process.processes import Process
from engine.runtime.scheduler.workers.worker_port import Survivor, WorkerPort, WorkerStarter
from engine.runtime.transport.link_client import LinkClient

_FOUND_S: Final = 3.0
"""The timeout for connecting to a worker of an earlier scheduler."""
_END_AGAIN_S: Final = 5.0
"""The interval between attempts to end a worker while Ray's control store or the disk does not answer."""


class RayWorkerPort(WorkerPort):
    """A worker in another process. Its death is reported by Ray; everything else uses connections."""

    def __init__(
        self,
        actor: RayActor,
        address: Address,
        client: LinkClient,
        beats: LinkClient,
        *,
        process: Process,
        term: Callable[[], int],
        end: Callable[[RayActor], Awaitable[None]],
    ) -> None:
        super().__init__(actor.name, address, client, term)
        self._actor = actor
        self._end = end
        self._process = process
        self._beats = beats
        self._ended = asyncio.Event()
        client.ended = self._ended.set
        if not client.link.usable:
            self._ended.set()

    def described(self) -> str:
        return str(self._process)

    async def beat(self) -> None:
        await self._beats.ask_until_answered("beat", int)

    async def watch(self) -> None:
        """Wait until the worker is dead, or its connection has ended, which makes it useless."""
        watches = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._ended.wait())]
        try:
            await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watch in watches:
                watch.cancel()

    async def _watch(self) -> None:
        with suppress(ActorDied):
            await self._actor.ask("watch", group=WATCH)

    async def end(self) -> None:
        # Ending the connections first lets waiting callers continue without waiting for Ray.
        self.client.link.abort()
        self._beats.link.abort()
        await self._end(self._actor)


class RayWorkers(WorkerStarter):
    """Starts workers of a data folder in this process's cluster."""

    def __init__(
        self,
        settings: RuntimeSettings,
        may_end: Callable[[], Awaitable[object]],
        term: Callable[[], int],
        *,
        lost_on: str = "",
    ) -> None:
        """`may_end` returns if this scheduler certainly has no successor.

        It raises DetectorUnavailable if that is unknown. `term` returns the term of this scheduler, and
        `lost_on` is the node of the previous scheduler.
        """
        self._term = term
        self._may_end = may_end
        self.lost_on = lost_on
        self._settings = dataclasses.replace(settings, data=settings.data.absolute())
        self._remote = ray.remote(**OPTIONS)(DetectorActor)
        self._endings = Background()
        self._prefix = f"worker-{settings.folder_id}-"

    async def start(self, avoid: frozenset[str], node: str | None, within_s: float) -> WorkerPort:
        # Without a node, Ray spreads the workers, and its autoscaler notices a worker that waits for room.
        name = f"{self._prefix}{secrets.token_hex(4)}"
        asked = {"num_cpus": self._settings.worker_cpus, "memory": max(self._settings.worker_memory_bytes, 1)}
        try:
            where = on_node(node) if node else await off_loop(partial(not_on, avoid), "ray nodes")
            create = partial(self._remote.options(name=name, **asked, **where).remote, self._settings)
            actor = await create_actor(create)
        except (RayError, ValueError) as error:
            raise ActorDied(first_line(error)) from error
        return await self._connect(RayActor(actor, name), within_s)

    async def survivors(self) -> Sequence[Survivor]:
        names: list[str] = await off_loop(ray.util.list_named_actors, "ray names")
        nodes = await off_loop(nodes_of_actors, "ray names")
        return [
            Survivor(self._find(name), nodes.get(name, "")) for name in names if name.startswith(self._prefix)
        ]

    async def _find(self, name: str) -> WorkerPort | None:
        try:
            actor = await off_loop(partial(ray.get_actor, name), "ray actor")
            return await self._connect(RayActor(actor, name), _FOUND_S)
        except (ActorDied, ValueError):
            # The worker has just died, or could not be reached and was ended.
            return None

    async def _connect(self, worker: RayActor, within_s: float) -> WorkerPort:
        """Connect to a worker, or end it. Raises ActorDied."""
        here = ray.get_runtime_context().get_node_id()
        clients: list[LinkClient] = []
        try:
            async with asyncio.timeout(within_s):
                pid: int
                address: Address
                pid, address, for_beats = await worker.ask("listen")
                for one in (address, for_beats):
                    clients.append(await LinkClient.to(one.seen_from(here)))  # noqa: PERF401 -- one may fail
        except BaseException as error:
            for client in clients:
                client.link.abort()
            # The end is not awaited, because Ray may not reach the worker either.
            self._endings.begin(self._end(worker))
            if isinstance(error, OSError):
                message = str(error) or "it does not answer"
                raise ActorDied(f"it cannot be reached: {message}") from error
            raise
        # This notices a machine that is gone or cut off even during a long activation.
        clients[1].link.end_if_unacknowledged(self._settings.node_timeout_s)
        process = Process(pid, address.host or address.node[:12], here=address.node == here)
        return RayWorkerPort(worker, address, *clients, process=process, term=self._term, end=self._end)

    async def _end(self, worker: RayActor, after_s: float = 0.0) -> None:
        """End a worker. Retries while Ray or the disk does not answer; gives up if there is a successor."""
        await asyncio.sleep(after_s)
        accepted = False
        with suppress(DetectorUnavailable):
            accepted = await worker.try_to_end(self._may_end)
        if not accepted:
            self._endings.begin(self._end(worker, _END_AGAIN_S))
