"""A front end's fleet in the cluster that this process belongs to."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from engine.runtime.broker.directory_service import LOGGED, LOOK, Logged
from engine.runtime.broker.fleet import Fleet
from engine.runtime.broker.remote_broker import RemoteBroker
from engine.runtime.cluster.ray_directory import RayDirectory
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.messages import Note
from snapshots.data_folder.identity import begin_folder


def fleet_on_ray(
    settings: RuntimeSettings,
    ray_trouble: Callable[[], str | None] = lambda: None,
    ray_ails: Callable[[], str | None] = lambda: None,
    *,
    of_the_folder: Mapping[str, str] = MappingProxyType({}),
) -> Fleet:
    """Create a fleet, not yet started, on the cluster that this process belongs to.

    Initializes the data folder if necessary. `ray_trouble` returns what is wrong with Ray, None if nothing
    is, and `ray_ails` the same as long as active detectors are served. `of_the_folder` are the settings that
    services which share the folder share, as they are written: if others are in force, that is logged. Raises
    StorageError.
    """
    folder_id = begin_folder(settings.data, lock_wait_s=settings.lock_wait_s)
    settings = dataclasses.replace(settings, folder_id=folder_id)
    directory = RayDirectory(settings, of_the_folder)
    broker = RemoteBroker(settings, directory.connect, trouble=ray_trouble, ails=ray_ails, end=directory.end)
    # Others cannot join a Ray that is reached by Unix sockets only.
    fleet = Fleet(settings, broker, shared=settings.transport != "unix")

    def noted(note: Note) -> None:
        if note.name == LOOK:
            fleet.look_again()
        elif note.name == LOGGED:
            _log(msgspec.msgpack.decode(note.body, type=Logged))

    broker.noted = noted
    return fleet


def _log(record: Logged) -> None:
    """Log what the directory has logged."""
    extra = {"fields": record.fields, "detail": record.detail}
    logging.getLogger(record.logger).log(record.level, "%s", record.message, extra=extra)
