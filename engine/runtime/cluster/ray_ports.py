"""Workers and directory as Ray actors, and the ports that start and call them."""

import asyncio
import dataclasses
import hashlib
import itertools
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from engine.runtime.activation.detector_service import MAKE_ROOM
from engine.runtime.broker.fleet import Fleet
from engine.runtime.broker.local_broker import LocalBroker
from engine.runtime.catalogue.directory import Directory, DirectorySettings
from engine.runtime.cluster.worker import WorkerActor
from engine.runtime.contract.calls import REPORT, Activated, Held, Report, decode_report
from engine.runtime.contract.catalogue_changes import Changes, Opened, TokenEntry
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.figures import NodeFigures, WorkerAnswer
from engine.runtime.contract.ports import WorkerPort
from engine.runtime.contract.routes import Address
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.process.off_loop import off_loop
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.messages import Note
from snapshots.data_folder.identity import begin_folder

_WATCH: Final = "watch"
"""The concurrency group of `watch`, which never returns."""
_END_S: Final = 2.0
"""How long Ray may take to end an actor. An actor that survives ends with Ray."""

_OPTIONS: Final[dict[str, Any]] = {
    # The pool replaces dead workers, and only idempotent calls are repeated.
    "max_restarts": 0,
    "max_task_retries": 0,
    # An idle actor must not reserve a CPU.
    "num_cpus": 0,
    "concurrency_groups": {_WATCH: 1},
}


class DirectoryActor(Directory):
    """A Directory as a Ray actor."""

    def ready(self) -> None:
        """Return once the process runs."""


class _Port:
    """A Ray actor whose exceptions are translated."""

    def __init__(self, actor: Any, name: str) -> None:
        self._actor = actor
        self.name = name

    async def end(self) -> None:
        """End the actor's process. Nothing is saved."""
        # The actor is dead already, or Ray does not answer; then the process ends with Ray.
        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(_END_S):
                await off_loop(partial(ray.kill, self._actor), "ray kill")

    async def _ask(self, method: str, *arguments: object, group: str | None = None) -> Any:
        call = getattr(self._actor, method)
        if group is not None:
            call = call.options(concurrency_group=group)
        try:
            return await call.remote(*arguments)
        except RayTaskError as error:
            # Raised by the method; the cause has the traceback in the actor's process.
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except RayActorError as error:
            raise ActorDied(_first_line(error)) from None
        except RayError as error:
            # Unreachable or out of memory: whether the call was executed is unknown, as after a death.
            raise ActorDied(f"{type(error).__name__}: {_first_line(error)}") from error


class RayWorkerPort(_Port):
    """A worker in another process. Ray tells of its death; all else goes by the connection."""

    def __init__(self, actor: Any, name: str, address: Address, client: LinkClient) -> None:
        super().__init__(actor, name)
        self.address = address
        self.reported: Callable[[Report], None] = _ignore
        self._client = client
        self._ended = asyncio.Event()
        client.noted, client.ended = self._noted, self._ended.set

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        """Activate a detector. Raises StorageError."""
        return await self._client.ask("activate", Activated, detector_id, epoch)

    async def adopt(self) -> list[Held]:
        """Have the worker report here, and return its active detectors."""
        return await self._client.ask("adopt", list[Held])

    def make_room(self, epoch: int) -> None:
        """Say that another detector waits for the slot of the one that is active in that epoch."""
        self._client.note(MAKE_ROOM, str(epoch).encode())

    async def delete(self, epoch: int) -> None:
        """Refuse waiting requests with 1200, let those in flight end, and drop the detector unsaved."""
        await self._client.ask("delete", None, epoch)

    async def close(self, epoch: int) -> str | None:
        """Answer waiting requests for a limited time, save and drop the detector."""
        return await self._client.ask("close", str | None, epoch)

    async def ping(self) -> None:
        """Return once the worker answers, even while it is busy."""
        await self._client.ask("ping", int)

    async def figures(self) -> WorkerAnswer:
        """Return what the worker is, and what it has measured."""
        return await self._client.ask("figures", WorkerAnswer)

    async def watch(self) -> None:
        """Wait until the worker is dead, or its connection has ended, without which it is of no use."""
        watches = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._ended.wait())]
        try:
            await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watch in watches:
                watch.cancel()

    async def end(self) -> None:
        """End the worker's process. Nothing is saved."""
        await super().end()
        self._client.link.abort()

    async def _watch(self) -> None:
        with suppress(ActorDied):
            await self._ask("watch", group=_WATCH)

    def _noted(self, note: Note) -> None:
        if note.name == REPORT:
            self.reported(decode_report(note.body))


class RayDirectoryPort(_Port):
    """A DirectoryActor in another process."""

    async def open(self) -> Opened:
        """Lock the data folder and read it. Raises StorageError, including FolderInUse."""
        return await self._ask("open")  # type: ignore[no-any-return]

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""
        return await self._ask("changes", tokens_seen, detectors_seen)  # type: ignore[no-any-return]

    async def add_token(
        self, token_id: str, digest: bytes, hint: str, name: str = "", created_at_ms: int | None = None
    ) -> int:
        """Store a token; return the version of the tokens that includes it."""
        return await self._ask("add_token", token_id, digest, hint, name, created_at_ms)  # type: ignore[no-any-return]

    async def revoke_token(self, token_id: str) -> int | None:
        """Remove a token; return the version without it, None if it does not exist."""
        return await self._ask("revoke_token", token_id)  # type: ignore[no-any-return]

    async def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""
        return await self._ask("tokens")  # type: ignore[no-any-return]

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used."""
        await self._ask("tokens_used", token_ids, at_ms)

    async def create_detector(self, detector_id: str, name: str) -> int | None:
        """Add a detector; return the catalogue's version that includes it, None if the limit is reached."""
        return await self._ask("create_detector", detector_id, name)  # type: ignore[no-any-return]

    async def delete_detector(self, detector_id: str) -> int | None:
        """Remove a detector; return the version without it, None if it does not exist."""
        return await self._ask("delete_detector", detector_id)  # type: ignore[no-any-return]

    async def purge_detector(self, detector_id: str) -> None:
        """Delete the files of a detector that was removed and that is active nowhere."""
        await self._ask("purge_detector", detector_id)

    async def lease(self, detector_id: str, worker: str) -> int | None:
        """Grant a detector to a worker: return an epoch, None if it does not exist."""
        return await self._ask("lease", detector_id, worker)  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Release the data folder."""
        await self._ask("close")


class RayWorkers:
    """Starts workers in the cluster that this process belongs to."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = dataclasses.replace(settings, data=settings.data.absolute())
        self._remote = ray.remote(**_OPTIONS)(WorkerActor)
        self._numbers = itertools.count(1)
        self._prefix = f"worker-{secrets.token_hex(4)}"

    async def start(self) -> WorkerPort:
        """Start a worker, and return it once it accepts calls."""
        name = f"{self._prefix}-{next(self._numbers)}"
        try:
            actor = await _created(partial(self._remote.remote, self._settings))
        except (RayError, ValueError) as error:
            raise ActorDied(_first_line(error)) from error
        port = _Port(actor, name)
        try:
            node = ray.get_runtime_context().get_node_id()
            address = await port._ask("listen", node, self._settings.transport)  # noqa: SLF001 -- this module's
            return RayWorkerPort(actor, name, address, await LinkClient.to(address))
        except OSError as error:
            await port.end()
            raise ActorDied(f"it cannot be reached: {error}") from error
        except BaseException:
            await port.end()
            raise

    async def survivors(self) -> list[WorkerPort]:
        """Return none: workers end with the process that has started them."""
        return []


class RayDirectoryStarter:
    """Starts the directory of a data folder: one per cluster, identified by its name."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._remote = ray.remote(**_OPTIONS)(DirectoryActor)

    async def start(self) -> RayDirectoryPort:
        """Start a directory, not yet opened. Raises ActorDied if that fails for now."""
        settings = self._settings
        data = settings.data.absolute()
        name = directory_name(data)
        known = DirectorySettings(
            data,
            settings.snapshots_kept,
            settings.lock_wait_s,
            service_pid=os.getpid(),
            folder_id=settings.folder_id,
            detectors_max=settings.detectors_max,
        )
        try:
            actor = await _created(partial(self._remote.options(name=name).remote, known))
        except ValueError as error:
            # Or the previous directory has just died and its name is not free yet: then a later attempt
            # succeeds.
            raise ActorDied("another service of this cluster has the data folder") from error
        except RayError as error:
            raise ActorDied(_first_line(error)) from error
        handle = RayDirectoryPort(actor, name)
        try:
            await handle._ask("ready")  # noqa: SLF001 -- a method of the module's own
        except BaseException:
            await handle.end()
            raise
        return handle


async def _created(create: Callable[[], Any]) -> Any:
    """Create an actor. If the caller is cancelled meanwhile, the actor is ended."""
    creating = off_loop(create, "ray actor")
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        creating.add_done_callback(_end_unwanted)
        raise


def _end_unwanted(creating: asyncio.Future[Any]) -> None:
    if not creating.cancelled() and creating.exception() is None:
        off_loop(partial(ray.kill, creating.result()), "ray kill").add_done_callback(_heed_no_error)


def _heed_no_error(ended: asyncio.Future[None]) -> None:
    if not ended.cancelled():
        ended.exception()


def broker_on_ray(
    settings: RuntimeSettings, ray_trouble: Callable[[], str | None] = lambda: None
) -> LocalBroker:
    """Create a broker, not yet started, on the cluster that this process belongs to.

    `ray_trouble` returns what is wrong with Ray, None if nothing is.
    """
    assert settings.folder_id is not None, "processes on other machines must know the folder from any other"
    return LocalBroker(
        settings, RayWorkers(settings), RayDirectoryStarter(settings), ray_trouble, cluster_nodes
    )


def fleet_on_ray(settings: RuntimeSettings, ray_trouble: Callable[[], str | None] = lambda: None) -> Fleet:
    """Create a fleet, not yet started, on the cluster that this process belongs to.

    Initializes the data folder if necessary. Raises StorageError.
    """
    folder_id = begin_folder(settings.data, lock_wait_s=settings.lock_wait_s)
    settings = dataclasses.replace(settings, folder_id=folder_id)
    return Fleet(settings, broker_on_ray(settings, ray_trouble))


def directory_name(data: Path) -> str:
    """Return the name of a data folder's directory actor; each folder is a service of its own."""
    return f"directory-{hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]}"


async def cluster_nodes() -> list[NodeFigures]:
    """Return the machines of the cluster, as Ray knows them."""
    found: list[dict[str, Any]] = await off_loop(ray.nodes, "ray nodes")
    return [
        NodeFigures(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            host=node["NodeManagerHostname"],
            alive=node["Alive"],
            cpus=node["Resources"].get("CPU", 0.0),
            memory_bytes=int(node["Resources"].get("memory", 0)),
        )
        for node in found
    ]


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _ignore(_: Report) -> None:
    return None
