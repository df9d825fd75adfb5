"""The directory's process: the only one in a cluster that places the detectors of a data folder."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_client import CatalogueClient
from engine.runtime.cluster.actors.ray_workers import RayWorkers
from engine.runtime.cluster.actors.serving_actor import ServingActor
from engine.runtime.cluster.ray_nodes import RayNodes
from engine.runtime.concurrency.threads import Threads
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.process.collector import freeze_present
from engine.runtime.process.log_records import ForwardedLogs
from engine.runtime.scheduler.scheduler import Scheduler
from engine.runtime.scheduler.scheduler_service import SchedulerService
from engine.runtime.transport.link import Link
from snapshots.data_folder.lock import FolderLock

_LOG_RECORDS_MAX: Final = 200
"""The most records of the directory's log that a service logs in ten seconds, with those of all workers."""


class DirectoryActor(ServingActor):
    """The Ray actor of the directory: tokens, catalogue, leases and the placement of detectors."""

    def __init__(
        self,
        settings: RuntimeSettings,
        service: Mapping[str, Any],
        shared_settings: Mapping[str, str],
        lost_on: str,
        lost: int = 0,
    ) -> None:
        """`service` is for whom the data folder is locked, as FolderLock takes it.

        `lost_on` is the node of the directory before this one, which may be lost with it, and `lost` is how
        many directories the service that starts this one has lost.
        """
        super().__init__(settings.transport)
        freeze_present()
        self._shared_settings = shared_settings
        self._settings = settings
        self._lock = partial(FolderLock, settings.data, wait_s=settings.lock_wait_s, **service)
        self._lost_on = lost_on
        self._lost = lost
        self._service: SchedulerService | None = None

    def folder(self) -> str:
        return str(self._settings.data)

    def _link(self, transport: str) -> Link:  # noqa: ARG002 -- all are served alike
        if self._service is None:
            settings = self._settings
            catalogue = CatalogueClient(
                lambda: Catalogue(settings, lock=self._lock()), settings, Threads("directory"), _give_up
            )
            scheduler = Scheduler(
                settings,
                RayWorkers(settings, catalogue.check_owner, lambda: catalogue.term, lost_on=self._lost_on),
                catalogue,
                nodes=RayNodes(),
                leave=lambda: os._exit(0),
                lost=self._lost,
            )
            self._service = SchedulerService(
                scheduler,
                folder=self.folder(),
                shared_settings=self._shared_settings,
                abandoned_s=settings.abandoned_s,
                ended=lambda: os._exit(0),
            )
            ForwardedLogs(self._serving.loop, self._service.log, records_max=_LOG_RECORDS_MAX).begin()
        return self._service.link()


def _give_up(reason: str) -> None:
    """End the process at once: a later directory must not be fenced off by this one."""
    sys.stderr.write(f"the directory ends: {reason}\n")
    os._exit(1)
