"""A service's access to the directory: one per data folder in a cluster, started on demand."""

import asyncio
import dataclasses
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from engine.runtime.cluster.actors.directory_actor import DirectoryActor
from engine.runtime.cluster.directory_reach import DirectoryReach, DirectoryWatch, Places
from engine.runtime.cluster.node_checks import DIRECTORY, begin_joined_folder
from engine.runtime.cluster.ray_calls import OPTIONS, RayActor, control_store, first_line
from engine.runtime.cluster.ray_nodes import look, node_for_directory
from engine.runtime.concurrency.background import mark_retrieved
from engine.runtime.concurrency.threads import LoopThread, off_loop
from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.figures import OtherSetting
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.scheduler_client import SchedulerClient, Unreachable
from engine.runtime.process.log_records import LOGGED, Logged
from engine.runtime.process.processes import Process
from engine.runtime.scheduler.workers.cluster_nodes import AVOIDED_S
from engine.runtime.transport.link import Note
from engine.runtime.transport.link_client import LinkClient
from snapshots.errors import StorageError

_log = logging.getLogger(__name__)

_REAPED_S: Final = 0.2
"""How long after a process's connections end the kernel may take to report how it ended."""
_PREPARED_S: Final = 10.0
"""How long the prepared process may take to start; the next directory does not wait longer for it."""


class RayDirectory:
    """Connects to the directory of a data folder, and replaces it if it is lost.

    A separate thread finds and watches the directory. The loop that serves callers may be blocked, and would
    then take the directory for silent.
    """

    def __init__(self, settings: RuntimeSettings, shared_settings: Mapping[str, str]) -> None:
        """`shared_settings` are those that all services share; the first service's are in force."""
        self._shared_settings = dict(shared_settings)
        self._other_settings: list[OtherSetting] = []
        """The settings of this service that are not in force."""
        data = settings.data.resolve()
        settings = dataclasses.replace(settings, data=data)
        cluster = control_store().cluster_id.hex()
        service = {"pid": os.getpid(), "host": socket.gethostname(), "cluster": cluster}
        self._folder = str(data)
        self._name = f"{DIRECTORY}{settings.folder_id}"
        remote: Any = ray.remote(**OPTIONS)(DirectoryActor)
        self._options = partial(remote.options, name=self._name, get_if_exists=True)
        self._arguments = settings, service, self._shared_settings
        self._lost_on = ""
        """The node of the last directory, which may be lost too."""
        self._lost = 0
        """How many directories were lost."""
        self._node = ""
        """The node that was last chosen for a directory."""
        self._failed_s: dict[str, float] = {}
        """When a directory last failed to start, by node, oldest first: Ray may take a dead one for alive."""
        self._leaving = False
        """Whether this service has ended the directory itself."""
        self._getting: asyncio.Future[Any] | None = None
        self._preparing: asyncio.Future[None] | None = None
        self._reach = DirectoryReach(settings.node_timeout_s)
        self._watch = DirectoryWatch(settings.node_timeout_s, settings.hung_s)
        self._thread = LoopThread("directory watch")
        self._found: _Found | None = None
        """The directory that this service watches."""

    async def connect(self) -> LinkClient:
        """Return a connection to the directory, once that has opened the data folder.

        Starts a directory if there is none. Raises StorageError and Unreachable, and ActorDied if a later
        attempt may succeed.
        """
        node = ray.get_runtime_context().get_node_id()
        found = await self._thread.call(self._find(node))
        client = await LinkClient.to(found.places.address.seen_from(node))
        found.served = client, asyncio.get_running_loop()
        try:
            folder: str = await client.ask("open", str, node)
            if folder != self._folder:
                raise Unreachable(  # noqa: TRY301 -- as from a call
                    f"{self._folder} has the identity of {folder}, which this cluster serves; "
                    "remove the file `identity` if it is a copy"
                )
            await self._compare(client)
        except BaseException as error:
            client.link.abort()
            if isinstance(error, StorageError):
                # Another process, perhaps on another node, may succeed.
                await found.actor.end()
            if isinstance(error, DetectorUnavailable):
                raise ActorDied(error.message) from error
            raise
        self._reach.answered(found.actor, found.places)
        return client

    async def _compare(self, client: LinkClient) -> None:
        """Log which settings of this service are not in force, if that has changed since the last time."""
        given = self._shared_settings
        found: list[OtherSetting] = await client.ask(
            "compare", list[OtherSetting], os.getpid(), socket.gethostname(), given
        )
        if found != self._other_settings:
            for one in found:
                _log.warning(
                    "%s %s is not in force: the service that started the directory of %s has %s",
                    one.setting,
                    one.given,
                    self._folder,
                    one.in_force,
                )
        self._other_settings = found

    async def end(self) -> None:
        """End the directory after it has saved everything."""
        self._leaving = True
        if self._found is not None:
            await self._found.actor.end()
        self._thread.end()

    # -- in the thread ---------------------------------------------------------------------------------------

    async def _find(self, node: str) -> "_Found":
        """Return the directory, and begin to watch it. Raises what `connect` raises."""
        actor = RayActor(await self._ensure_actor(), self._name)
        found = self._found
        if found is not None and found.actor.actor == actor.actor and found.is_watched:
            return found
        try:
            places, beats = await self._reach.connect(actor, node)
        except ActorDied as error:
            if self._node and (found is None or found.actor.actor != actor.actor):
                _log.warning(
                    "the directory does not answer (%s); for a while, none is started on the node %s",
                    error,
                    self._node[:12],
                )
                self._failed_s.pop(self._node, None)
                self._failed_s[self._node] = time.monotonic()
            raise
        self._lost_on = places.address.node
        if found is not None:
            found.watching.cancel()
        here = places.address.node == node
        process = Process(places.pid, places.address.host or places.address.node[:12], here=here)
        found = self._found = _Found(actor, places, process)
        found.watching = asyncio.create_task(self._end_if_lost(found, beats))
        return found

    async def _ensure_actor(self) -> Any:
        """Return the actor. Concurrent callers share one query to Ray."""
        if self._getting is None:
            self._getting = off_loop(self._find_or_start, "ray actor")
            self._getting.add_done_callback(self._got_over)
        try:
            return await asyncio.shield(self._getting)
        except (RayError, ValueError) as error:
            # Or the name of the last directory, which has just ended, is not free yet.
            raise ActorDied(first_line(error)) from error

    def _find_or_start(self) -> Any:
        """Return the actor; start one if there is none."""
        return self._options(scheduling_strategy=self._where()).remote(
            *self._arguments, self._lost_on, self._lost
        )

    def _where(self) -> Any:
        """Return Ray's scheduling option for the node where the next directory is likely to last longest."""
        here = ray.get_runtime_context().get_node_id()
        since_s = time.monotonic() - AVOIDED_S
        failed = [node for node, at_s in self._failed_s.items() if at_s > since_s]
        node = node_for_directory(look(), here, self._lost_on, failed)
        self._node = node or ""
        return "DEFAULT" if node is None else NodeAffinitySchedulingStrategy(node, soft=True)

    def _prepare(self) -> None:
        """Have Ray start the process for the next directory ahead of time: a start takes a second or more."""
        if self._preparing is None or self._preparing.done():
            self._preparing = off_loop(self._start_process, "ray process")
            self._preparing.add_done_callback(mark_retrieved)

    def _start_process(self) -> None:
        task: Any = ray.remote(num_cpus=0, max_retries=0)(_import_modules)
        ray.get(task.options(scheduling_strategy=self._where()).remote(), timeout=_PREPARED_S)

    def _got_over(self, getting: asyncio.Future[Any]) -> None:
        self._getting = None
        mark_retrieved(getting)

    async def _end_if_lost(self, found: "_Found", beats: LinkClient) -> None:
        """Watch the directory, and end it when it counts as lost; another one replaces it."""
        try:
            silent_s = await self._watch.until_lost(beats, self._prepare, found.needed)
            if silent_s is not None:
                self._lost += 1
                message = "the directory (%s) has not answered for %g s, and is replaced"
                _log.warning(message, found.process, silent_s)
                await found.actor.end()
            elif not beats.link.usable and not self._leaving:
                self._lost += 1
                # The next directory need not wait until the kernel knows how this one ended.
                found.disconnect()
                await asyncio.sleep(_REAPED_S)
                _log.warning("the directory (%s) has ended, and is replaced", found.process)
            found.disconnect()
        finally:
            beats.link.abort()


@dataclass(eq=False)
class _Found:
    """A directory, and its connection in the loop that serves callers."""

    actor: RayActor
    places: Places
    process: Process
    watching: asyncio.Task[None] = field(init=False)
    served: tuple[LinkClient, asyncio.AbstractEventLoop] | None = None
    """The connection to the directory, and its loop; None until there is one."""

    @property
    def is_watched(self) -> bool:
        """Whether the watch continues."""
        return self.needed() and not self.watching.done()

    def needed(self) -> bool:
        """Whether the directory must be watched: its connection is open, or not made yet."""
        return self.served is None or self.served[0].link.usable

    def disconnect(self) -> None:
        if self.served is not None:
            client, loop = self.served
            # A closed loop no longer needs the connection.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(client.link.abort)


def _import_modules() -> None:
    """Do nothing; running this in a process imports this module, and with it the directory's modules.

    Ray keeps the process for the next actor or task of this service on its node.
    """


def backend_on_ray(
    settings: RuntimeSettings,
    not_ready: Callable[[], str | None] = lambda: None,
    problem: Callable[[], str | None] = lambda: None,
    *,
    shared_settings: Mapping[str, str] = MappingProxyType({}),
) -> Backend:
    """Create a backend, not yet started, on the cluster that this process belongs to.

    Initializes the data folder if necessary. `not_ready` and `problem` are those of SchedulerClient.
    `shared_settings` are the settings, as text, that all services of the folder share; those that are not in
    force are logged. Raises StorageError.
    """
    folder_id = begin_joined_folder(settings.data, lock_wait_s=settings.lock_wait_s)
    settings = dataclasses.replace(settings, folder_id=folder_id)
    directory = RayDirectory(settings, shared_settings)

    def noted(note: Note) -> None:
        if note.name == LOGGED:
            msgspec.msgpack.decode(note.body, type=Logged).log()

    scheduler = SchedulerClient(
        settings, directory.connect, noted=noted, not_ready=not_ready, problem=problem, end=directory.end
    )
    # Other services cannot join a Ray that is reached by Unix sockets only.
    return Backend(settings, scheduler, shared=settings.transport != "unix")
