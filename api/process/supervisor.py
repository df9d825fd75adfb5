"""The main process: starts and ends sockets, Ray, the backend and front ends, and handles signals."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import uvloop

from api.http.app import Application
from api.observability import logs
from api.observability.metrics_page import MetricsPage, look_at
from api.observability.probes import Probes, probes
from api.observability.readiness import Readiness
from api.process.certificates import Certificates, certificates_of
from api.process.front_end import serve_on
from api.process.front_ends import FrontEndFailed, FrontEnds
from api.process.listening import StartError, listening, listening_for_probes, raise_limit, url_at
from api.process.ray_lifetime import LastWords, start_ray, stop_when_lost, stopping_ray
from api.setting import option_of
from api.settings import Settings
from api.settings_sources import TRACING_HINT, can_trace
from engine.runtime.cluster.node_checks import (
    OtherVersionError,
    begin_joined_folder,
    patience_warning,
    refuse_other_versions,
    try_nodes,
)
from engine.runtime.cluster.ray_directory import backend_on_ray
from engine.runtime.cluster.session import ray_session as cluster
from engine.runtime.cluster.session.joining import ClusterError
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.front_end.backend import Backend
from engine.runtime.process.processes import keep_needed, of_tracing
from snapshots.data_folder.identity import begin_folder
from snapshots.data_folder.lock import FolderLock
from snapshots.data_folder.trial import try_folder
from snapshots.errors import StorageError

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LOST_GRACE_S: Final = 1.0


class UnsavedError(Exception):
    """The service ended with Ray, or could not save all of its state; the message says which."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running service."""

    url: str
    token: str | None
    """The bootstrap token, else the first token if it was minted now; None if tokens existed already."""
    minted: bool
    """Whether the token was minted now, and is shown only here."""


Work = Callable[[Running], Awaitable[bool]]
"""Work to do once the service answers. It returns whether the service keeps running."""


def run(settings: Settings, work: Work) -> None:
    """Serve until SIGTERM, SIGINT or the end of `work`, then save everything to disk.

    The order matters. The socket comes first, because a port in use is the most common obstacle and is found
    at once. The signal handlers come last, because Ray installs its own when it starts. Raises StartError,
    UnsavedError.
    """
    logs.set_up(settings)
    _refuse_tracing(settings)
    certificates = certificates_of(settings)
    _interrupt_on_signals()
    for_front_ends = {} if settings.otlp_endpoint is None else of_tracing()
    keep_needed()
    raise_limit()
    with (
        suppress(KeyboardInterrupt),
        listening(settings) as listeners,
        listening_for_probes(settings) as for_probes,
        closing(LastWords(listeners)) as words,
    ):
        joins = settings.ray_address != cluster.LOCAL
        if not joins:
            _refuse_folder(settings, begin_folder)
        try:
            ray = start_ray(settings.ray_address, settings.join_timeout_s)
        except ClusterError as error:
            raise StartError(str(error)) from None
        with stopping_ray(ray):
            _interrupt_on_signals()
            # Ray is running, so workers no longer inherit them.
            os.environ.update(for_front_ends)
            if joins:
                _refuse_nodes(settings)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                service = _Service(settings, certificates, listeners, work, ray, words)
                runner.run(service.serve_watching(for_probes))


@dataclass(frozen=True, slots=True)
class _Service:
    """The part of the service that runs in the event loop."""

    settings: Settings
    certificates: Certificates | None
    listeners: list[socket.socket]
    work: Work
    ray: cluster.Cluster
    words: LastWords

    async def serve_watching(self, for_probes: socket.socket | None) -> None:
        """Serve until a signal, the end of `work`, or the loss of Ray. Raises what `run` raises."""
        stopping, words = _stop_on_signals(), self.words
        looking = asyncio.create_task(stop_when_lost(self.ray, words, stopping))
        try:
            with probes(for_probes) as answering:
                await self._serve(answering, stopping)
        except UnsavedError as error:
            if words.reason is None:
                raise
            raise UnsavedError(f"{words.reason}, and with it the service\n{error}") from None
        finally:
            looking.cancel()
        if words.reason is not None:
            lost = "nothing that was answered"
            if self.settings.journal_sync == "off":
                # It is unknown whether the detectors that died with Ray had changed.
                lost = "at most what was evaluated after the last snapshots"
            raise UnsavedError(f"{words.reason}, and with it the service; {lost} is lost")

    def _grace_s(self) -> float:
        # Without Ray, requests for detectors cannot finish.
        return self.settings.shutdown_grace_s if self.words.reason is None else _LOST_GRACE_S

    def _not_ready(self) -> str | None:
        return self.words.reason or (self.ray.watch.problem() if self.ray.embedded else None)

    def _problem(self) -> str | None:
        silent = None if self.ray.embedded else self.ray.watch.problem()
        return silent and f"{silent}: only detectors that are active, and spare workers, can be used"

    async def _serve(self, answering: Probes | None, stopping: asyncio.Event) -> None:
        settings, words = self.settings, self.words
        async with _backend(settings, self._not_ready, self._problem, stopping) as backend:
            if stopping.is_set():
                return
            try:
                running = await _running(settings, self.listeners[0], backend)
            except DetectorUnavailable as error:
                raise StartError(error.message) from None

            async def until_stopped() -> None:
                if await _unless_stopped(self.work(running), stopping):
                    await stopping.wait()
                if words.reason is None:
                    words.close()

            if settings.front_ends == 1:
                app = Application(settings, backend)
                if answering is not None:
                    answering.show(app.readiness, app.metrics_page)
                await serve_on(
                    self.listeners[0],
                    app,
                    settings,
                    self.certificates,
                    until=until_stopped,
                    wait_s=lambda: settings.shutdown_wait_s,
                    grace_s=self._grace_s,
                )
            else:
                readiness = Readiness(backend.status)
                if answering is not None:
                    answering.show(readiness, MetricsPage(partial(look_at, backend)))
                await self._serve_by_front_ends(backend, until_stopped, readiness)

    async def _serve_by_front_ends(
        self, backend: Backend, until_stopped: Callable[[], Awaitable[None]], readiness: Readiness
    ) -> None:
        """Serve by several front-end processes. Raises StartError."""
        settings = self.settings
        front_ends = FrontEnds(settings, backend.scheduler, self.listeners)
        try:
            await front_ends.start()
        except FrontEndFailed as error:
            raise StartError(f"a front end did not start: {error}") from None
        try:
            await until_stopped()
        finally:
            readiness.announce_shutdown()
            left_s = settings.shutdown_wait_s + self._grace_s()
            refusal = asyncio.get_running_loop().call_later(left_s, backend.refuse_all)
            await front_ends.stop()
            refusal.cancel()


async def _unless_stopped(work: Awaitable[T], stopping: asyncio.Event) -> T | None:
    """Await work and return its result; if `stopping` is set first, cancel it and return None."""
    working = asyncio.ensure_future(work)
    signalled = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({working, signalled}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        signalled.cancel()
        working.cancel()
        await asyncio.wait({working})


async def _running(settings: Settings, listener: socket.socket, backend: Backend) -> Running:
    """Return the address and the first token: the one in the settings, or a new one if there is none yet."""
    host, port = listener.getsockname()[:2]
    url = url_at(host, port, "http" if settings.tls_cert is None else "https")
    if settings.bootstrap_token is not None:
        return Running(url, settings.bootstrap_token, minted=False)
    if backend.any_token:
        return Running(url, None, minted=False)
    return Running(url, (await backend.mint_token()).token, minted=True)


def _stop_on_signals() -> asyncio.Event:
    """Return the event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping


@asynccontextmanager
async def _backend(
    settings: Settings,
    not_ready: Callable[[], str | None],
    problem: Callable[[], str | None],
    stopping: asyncio.Event,
) -> AsyncIterator[Backend]:
    """Start the backend unless `stopping` is set; at the end, save all active detectors.

    Raises StartError, UnsavedError.
    """
    try:
        backend = backend_on_ray(
            settings.runtime_settings(), not_ready, problem, shared_settings=settings.shared_settings()
        )
    except StorageError as error:
        raise StartError(str(error)) from None
    try:
        await _unless_stopped(backend.start(), stopping)
    except (StorageError, DetectorUnavailable) as error:
        await backend.close()
        raise StartError(str(error)) from None
    try:
        yield backend
    finally:
        unsaved = await backend.close()
    if unsaved:
        raise UnsavedError("\n".join(unsaved))


def _refuse_tracing(settings: Settings) -> None:
    """Raise StartError if spans are to be sent but the packages for that are missing."""
    if settings.otlp_endpoint is not None and not can_trace():
        option = option_of("otlp_endpoint")
        raise StartError(f"{option} needs packages that are not installed: {TRACING_HINT}")


def _refuse_folder(settings: Settings, begin: Callable[..., str]) -> str:
    """Return the data folder's id. Raises StartError if the folder is unusable.

    A service with an embedded Ray checks this before Ray takes seconds to start. When joining a cluster, the
    right folder depends on the cluster. The directory itself takes the lock, in a process that may run on
    another machine, so only a service with an embedded Ray can try the lock beforehand. This waits a little
    for a service that is just ending.
    """
    wait_s = settings.runtime_settings().lock_wait_s
    try:
        folder_id = begin(settings.data, lock_wait_s=wait_s, must_exist=settings.existing_data)
        for warning in try_folder(settings.data):
            _log.warning("%s", warning)
        if settings.ray_address == cluster.LOCAL:
            with FolderLock(settings.data, wait_s=wait_s):
                pass
    except StorageError as error:
        raise StartError(str(error)) from None
    return folder_id


def _refuse_nodes(settings: Settings) -> None:
    """Check that the cluster has compatible versions and the same folder, and that nodes see changes at once.

    Raises StartError.
    """
    try:
        for warning in refuse_other_versions():
            _log.warning("%s", warning)
    except OtherVersionError as error:
        raise StartError(str(error)) from None
    if (impatient := patience_warning()) is not None:
        _log.warning("%s", impatient)
    folder_id = _refuse_folder(settings, begin_joined_folder)
    try:
        for warning in try_nodes(settings.data, folder_id):
            _log.warning("%s", warning)
    except StorageError as error:
        raise StartError(str(error)) from None


def _interrupt_on_signals() -> None:
    """Make SIGTERM and SIGINT raise KeyboardInterrupt before and after serving.

    SIGINT is included, because a background process of a script starts with it ignored.
    """

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
