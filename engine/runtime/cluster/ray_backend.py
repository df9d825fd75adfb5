"""The backend of a front end, in the cluster that this process belongs to."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from engine.runtime.cluster.joined_folder import begin_joined_folder
from engine.runtime.cluster.ray_directory import RayDirectory
from engine.runtime.contract.log_records import LOGGED, Logged
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.scheduler_client import SchedulerClient
from engine.runtime.transport.messages import Note


def backend_on_ray(
    settings: RuntimeSettings,
    not_ready: Callable[[], str | None] = lambda: None,
    problem: Callable[[], str | None] = lambda: None,
    *,
    shared_settings: Mapping[str, str] = MappingProxyType({}),
) -> Backend:
    """Create a backend, not yet started, on the cluster that this process belongs to.

    Initializes the data folder if necessary. `not_ready` and `problem` are those of SchedulerClient.
    `shared_settings` are the settings that all services of the folder share, as text; those not in force are
    logged. Raises StorageError.
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
    # Others cannot join a Ray that is reached by Unix sockets only.
    return Backend(settings, scheduler, shared=settings.transport != "unix")
