"""The worker process: an event loop beside Ray's thread serves its detectors."""

import contextlib
import ctypes
import faulthandler
import os
import sys
from collections.abc import Sequence
from typing import Final, TypeVar

from ray._raylet import setproctitle  # type: ignore[attr-defined]

from engine.runtime.activation.detector_service import DetectorService
from engine.runtime.activation.detector_thread import DetectorThread, WorkerThreads
from engine.runtime.cluster.actors.serving_actor import ServingActor
from engine.runtime.contract.measures import Measures
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.process.collector import collect_seldom
from engine.runtime.process.log_records import ForwardedLogs
from engine.runtime.transport.link import Link
from snapshots.data_folder.mounts import mount_check
from snapshots.files import RealFiles

T = TypeVar("T")

_LOG_RECORDS_MAX: Final = 20
"""The maximum number of log records that a worker forwards to the service's log in ten seconds."""
_SWITCH_S: Final = 0.001
"""How long the event loop waits for a computing thread each time it continues. Reading a large batch, it
continues once for each 64 KiB."""
_TITLED_MAX: Final = 3
"""How many detectors the title of a worker process names."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""The parameter's number for `mallopt`, from glibc's malloc.h."""

_LARGE_BYTES: Final = 2 * 1024 * 1024
_FREE_BYTES_KEPT: Final = 64 * 1024 * 1024
"""The value that glibc's own adaptation reaches once large blocks have been freed."""


class DetectorActor(ServingActor):
    """The Ray actor of a worker: a process for one or several active detectors."""

    def __init__(self, settings: RuntimeSettings) -> None:
        super().__init__(settings.transport)
        collect_seldom()
        map_large_blocks()
        sys.setswitchinterval(_SWITCH_S)
        self._settings = settings
        self._measures = Measures()
        self._check_mount = mount_check(settings.data, RealFiles())
        self._threads = WorkerThreads(settings.detectors_per_worker)
        self._service: DetectorService | None = None

    def _link(self, transport: str) -> Link:
        if self._service is None:
            self._service = DetectorService(
                self._settings,
                self._make_place,
                self._measures,
                self.node,
                abandoned=lambda: os._exit(0),
                show=lambda detectors: setproctitle(title(detectors)),
            )
            ForwardedLogs(self._serving.loop, self._service.log, records_max=_LOG_RECORDS_MAX).begin()
        return self._service.link(transport)

    def _make_place(self) -> DetectorThread:
        actor = OperationExecutor(
            self._settings, crashes_to=crashes_to, check_mount=self._check_mount, measures=self._measures
        )
        service = self._service
        assert service is not None, "the service makes the ports"
        return DetectorThread(actor, self._threads, service.has_one, service.more_waits)


def title(detectors: Sequence[str]) -> str:
    """Return the title of a worker process: the class of its actor, and the ids of a few detectors.

    Ray's own table of actors cannot show them: it is written once, at the start, and workers are reused.
    """
    shown = [f"ray::{DetectorActor.__name__}", *detectors[:_TITLED_MAX]]
    more = len(detectors) - _TITLED_MAX
    return " ".join(shown) + (f" and {more} more" if more > 0 else "")


def crashes_to(descriptor: int | None) -> None:
    """Direct crash reports (segmentation fault, abort) to an open file, or to standard error for None.

    Does nothing if standard error is not writable.
    """
    faulthandler.disable()
    if descriptor is not None:
        faulthandler.enable(descriptor)
        return
    # Standard error may be closed, or replaced by a Python object.
    with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
        faulthandler.enable()


def map_large_blocks() -> None:
    """Allocate large blocks by mmap, for a process that holds arrays over very many keys.

    By default, once a large block was freed, glibc allocates ever larger blocks on its heap. An array that
    grows there is copied. At a million keys, one event may grow several arrays of 6 MiB: that takes 10 to 15
    ms on the heap, and less than 3 with mmap. Does nothing with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
