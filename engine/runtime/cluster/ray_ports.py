"""Workers and directory as Ray actors, and the ports that call them and translate Ray's exceptions."""

import asyncio
import dataclasses
import hashlib
import itertools
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from engine.runtime.broker.fleet import Fleet
from engine.runtime.broker.local_broker import LocalBroker
from engine.runtime.catalogue.directory import Directory, DirectorySettings
from engine.runtime.cluster.worker import WorkerActor
from engine.runtime.contract.calls import Activated, Health, decode_result, encode_call
from engine.runtime.contract.catalogue_changes import Changes, Opened
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.operations import Operation, Reply, decode_reply, encode_batch
from engine.runtime.contract.settings import BatchTransport, RuntimeSettings
from engine.runtime.process.off_loop import off_loop
from engine.runtime.transport.batch_connection import BatchConnection, NotSent
from engine.runtime.transport.frames import BATCH, CALL, Payload
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import StorageError

_log = logging.getLogger(__name__)

_HEALTH: Final = "health"
_SAVING: Final = "saving"
_HEALTH_THREADS: Final = 2
"""One for `watch`, which never returns, and one for `health`."""
_END_S: Final = 2.0
"""How long Ray may take to end an actor. An actor that survives ends with Ray."""

_OPTIONS: Final[dict[str, Any]] = {
    # The pool replaces dead workers, and only idempotent calls are repeated.
    "max_restarts": 0,
    "max_task_retries": 0,
    # An idle actor must not reserve a CPU.
    "num_cpus": 0,
    "concurrency_groups": {_HEALTH: _HEALTH_THREADS, _SAVING: 1},
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
    """A WorkerActor in another process. Batches use a connection of their own if there is one."""

    def __init__(self, actor: Any, name: str) -> None:
        super().__init__(actor, name)
        self._connection: BatchConnection | None = None

    async def connect(self, way: BatchTransport) -> None:
        """Open a connection for batches, which is cheaper than Ray. If that fails, batches go by Ray.

        Raises ActorDied.
        """
        if way == "ray":
            return
        try:
            node = ray.get_runtime_context().get_node_id()
            address = await self._ask("listen", node, way)
            if address is not None:
                self._connection = await BatchConnection.to(address)
        except (OSError, StorageError) as error:
            _log.warning(
                "batches to the detector worker %s go by Ray, because it cannot be reached: %s",
                self.name,
                error,
            )

    async def end(self) -> None:
        """End the worker's process. Nothing is saved."""
        await super().end()
        if self._connection is not None:
            await self._connection.close()

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        """Activate a detector. Raises StorageError."""
        return await self._call("activate", detector_id, epoch)  # type: ignore[no-any-return]

    async def handle(self, batch: Sequence[Operation]) -> Reply:
        """Execute a batch. A batch that was sent is never sent again."""
        payload = encode_batch(batch)
        reply = await self._send(BATCH, payload)
        return decode_reply(await self._ask("handle_bytes", payload) if reply is None else reply)

    async def sync(self) -> None:
        """Sync the journal to the disk. Raises StorageError."""
        await self._call("sync")

    async def begin_saving(self) -> bool:
        """Copy the state for a snapshot; whether there is anything for `finish_saving` to write."""
        return await self._call("begin_saving")  # type: ignore[no-any-return]

    async def finish_saving(self) -> None:
        """Write the snapshot that was begun, while batches continue. Raises StorageError."""
        await self._ask("finish_saving", group=_SAVING)

    async def passivate(self) -> int:
        """Save and drop the detector; return the bytes that the process holds. Raises StorageError."""
        return await self._call("passivate")  # type: ignore[no-any-return]

    async def discard(self) -> None:
        """Drop the detector without saving it."""
        await self._call("discard")

    async def health(self) -> Health:
        """Return the worker's state, even while it is busy."""
        return await self._ask("health", group=_HEALTH)  # type: ignore[no-any-return]

    async def watch(self) -> None:
        """Wait until the worker is dead."""
        try:
            await self._ask("watch", group=_HEALTH)
        except ActorDied:
            return

    async def _call(self, method: str, *arguments: str | int) -> Any:
        """Call a method. A call that was sent is never sent again."""
        reply = await self._send(CALL, encode_call(method, arguments))
        return await self._ask(method, *arguments) if reply is None else decode_result(method, reply)

    async def _send(self, kind: int, request: Payload) -> Payload | None:
        """Send a request on the connection and return the answer; None if the request must go by Ray."""
        connection = self._connection
        if connection is not None:
            try:
                return await connection.ask(request, kind)
            except NotSent as error:
                # Ray knows whether the worker lives, and has no limit on the size.
                if not connection.usable:
                    _log.warning("batches to the detector worker %s go by Ray: %s", self.name, error)
                    self._connection = None
        return None


class RayDirectoryPort(_Port):
    """A DirectoryActor in another process."""

    async def open(self) -> Opened:
        """Lock the data folder and read it. Raises StorageError, including FolderInUse."""
        return await self._ask("open")  # type: ignore[no-any-return]

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""
        return await self._ask("changes", tokens_seen, detectors_seen)  # type: ignore[no-any-return]

    async def add_token(self, token_id: str, digest: bytes, hint: str) -> int:
        """Store a token; return the version of the tokens that includes it."""
        return await self._ask("add_token", token_id, digest, hint)  # type: ignore[no-any-return]

    async def revoke_token(self, token_id: str) -> int | None:
        """Remove a token; return the version without it, None if it does not exist."""
        return await self._ask("revoke_token", token_id)  # type: ignore[no-any-return]

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

    async def start(self) -> RayWorkerPort:
        """Start a worker, and return it once it accepts calls."""
        name = f"{self._prefix}-{next(self._numbers)}"
        try:
            actor = await _created(partial(self._remote.remote, self._settings))
        except (RayError, ValueError) as error:
            raise ActorDied(_first_line(error)) from error
        handle = RayWorkerPort(actor, name)
        try:
            await handle.health()
            await handle.connect(self._settings.batch_transport)
        except BaseException:
            await handle.end()
            raise
        return handle


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
    return LocalBroker(settings, RayWorkers(settings), RayDirectoryStarter(settings), ray_trouble)


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


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
