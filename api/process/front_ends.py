"""Starts, watches, replaces and ends the front-end processes of `serve --front-ends`."""

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from api.process import front_end as front_end_program
from api.settings import Settings
from engine.runtime.concurrency.beats import answer_within
from engine.runtime.contract.measures import FRONT_ENDS_LOST
from engine.runtime.front_end.scheduler_client import ABANDONABLE, SchedulerClient
from engine.runtime.process.processes import STOPPED, state_of
from engine.runtime.transport.connecting import TLS_VARIABLES
from engine.runtime.transport.link import Note
from engine.runtime.transport.server_connection import ServerConnection

_log = logging.getLogger(__name__)

_START_S: Final = 60.0
"""How long a front end may take until it serves."""
_LOOKS: Final = 4
"""The number of checks of a front end within the time that it may be stopped."""
_AGAIN_S: Final = 1.0
"""The pause before another attempt to start a front end."""
_MARGIN_S: Final = 5.0
"""How long a front end may take to end after the grace period of its requests."""


class Signs:
    """The signs of life of a front end, checked several times within `node_timeout_s`.

    Its timeouts are those of workers and directories. It counts checks instead of seconds, because this
    process may have been stopped itself.
    """

    def __init__(self, node_timeout_s: float, hung_s: float) -> None:
        self.look_s = node_timeout_s / _LOOKS
        """The interval between two checks."""
        self._hung_looks = max(_LOOKS, round(hung_s / self.look_s))
        self._hung_s = hung_s
        self._timeout_s = node_timeout_s
        self._heard = -1
        self._silent = self._stopped = 0

    def look(self, heard: int, *, stopped: bool) -> str | None:
        """Return why the front end counts as lost; None if it does not.

        `heard` grows with each of its messages; a live front end polls twice a second.
        """
        self._silent = self._silent + 1 if heard == self._heard else 0
        self._stopped = self._stopped + 1 if stopped else 0
        self._heard = heard
        if self._stopped >= _LOOKS:
            return f"has been stopped for {self._timeout_s:g} s"
        if self._silent >= self._hung_looks:
            return f"no longer answers: it has been silent for {self._hung_s:g} s"
        return None


class FrontEndFailed(Exception):
    """A front end did not start; the message says why."""


class FrontEnd:
    """One front-end process, and the link to it."""

    def __init__(self, process: Process, scheduler: SchedulerClient) -> None:
        self.process = process
        self.serves = asyncio.Event()
        self.leaving = asyncio.Event()
        self._failure = ""
        """Why it cannot serve, if it said so."""
        self.link = ServerConnection(
            scheduler.relay(), abandonable=ABANDONABLE, noted=self._noted, lost=self.leaving.set
        )

    @classmethod
    async def start(
        cls, settings: Settings, listener: socket.socket, scheduler: SchedulerClient
    ) -> "FrontEnd":
        """Start a front end on a listening socket, which stays open here. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = theirs.fileno(), listener.fileno()
            # -P: modules in the working directory must not be imported.
            command = (sys.executable, "-P", "-m", "api.process.front_end", *map(str, descriptors))
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, pass_fds=descriptors, env=_environment()
            )
        front_end = cls(process, scheduler)
        await front_end.link.start(ours)
        assert process.stdin is not None, "it was requested"
        with suppress(ConnectionError):
            process.stdin.write(front_end_program.encode_settings(settings))
            process.stdin.close()
        return front_end

    async def until_it_serves(self) -> None:
        """Return once it serves requests. Raises FrontEndFailed."""
        serves = asyncio.ensure_future(self.serves.wait())
        ended = asyncio.ensure_future(self.process.wait())
        with suppress(TimeoutError):
            first = asyncio.wait({serves, ended}, return_when=asyncio.FIRST_COMPLETED)
            await answer_within(first, _START_S)
        serves.cancel()
        ended.cancel()
        if not self.serves.is_set():
            status = self.process.returncode
            ended_so = f"it ended with status {status}" if status is not None else "it took too long"
            raise FrontEndFailed(self._failure or ended_so)

    async def until_it_leaves(self, signs: Signs) -> None:
        """Return when it must be replaced. Kills it if it is stopped or hung."""
        leaves = asyncio.ensure_future(self.leaving.wait())
        pid = self.process.pid
        while not leaves.done():
            await asyncio.wait({leaves}, timeout=signs.look_s)
            lost = signs.look(self.link.heard, stopped=state_of(pid) == STOPPED)
            if lost is not None and not leaves.done():
                _log.error("the front end %d %s, and is killed", pid, lost)
                self.kill()
                await leaves

    def kill(self) -> None:
        """Kill it."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def _noted(self, note: Note) -> None:
        match note.name:
            case front_end_program.READY:
                self.serves.set()
            case front_end_program.FAILED:
                self._failure = note.body.decode()
            case front_end_program.LEAVING:
                self.leaving.set()


@dataclass(eq=False)
class FrontEnds:
    """A front end for each listening socket.

    The sockets stay open here, so that connections made during a replacement wait for the next front end.
    """

    _settings: Settings
    _scheduler: SchedulerClient
    _listeners: Sequence[socket.socket]
    _all: set[FrontEnd] = field(default_factory=set)
    _keepers: set[asyncio.Task[None]] = field(default_factory=set)
    _stopping: bool = False

    async def start(self) -> None:
        """Return once all serve requests. Raises FrontEndFailed."""
        try:
            async with asyncio.TaskGroup() as starts:
                started = [starts.create_task(self._start(listener)) for listener in self._listeners]
        except* (FrontEndFailed, OSError) as failures:
            await self.stop()
            raise FrontEndFailed(str(failures.exceptions[0])) from failures
        for listener, start in zip(self._listeners, started, strict=True):
            self._keep(self._replacing(start.result(), listener))

    async def stop(self) -> None:
        """End all front ends after they have answered the requests in progress."""
        self._stopping = True
        for front_end in self._all:
            front_end.link.note(front_end_program.STOP)
        for listener in self._listeners:
            listener.close()
        settings = self._settings
        most_s = settings.shutdown_wait_s + settings.shutdown_grace_s + _MARGIN_S
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=most_s)
        for front_end in self._all:
            _log.error("the front end %d did not end in time", front_end.process.pid)
            front_end.kill()
        if self._keepers:
            await asyncio.wait(self._keepers)

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        keeper = asyncio.create_task(work)
        self._keepers.add(keeper)
        keeper.add_done_callback(self._keepers.discard)

    async def _start(self, listener: socket.socket) -> FrontEnd:
        front_end = await FrontEnd.start(self._settings, listener, self._scheduler)
        self._all.add(front_end)
        self._keep(self._until_ended(front_end))
        if self._stopping:
            front_end.link.note(front_end_program.STOP)
        try:
            await front_end.until_it_serves()
        except BaseException:
            front_end.kill()
            raise
        return front_end

    async def _until_ended(self, front_end: FrontEnd) -> None:
        status = await front_end.process.wait()
        front_end.leaving.set()
        front_end.link.close()
        self._all.discard(front_end)
        if status != 0 and not self._stopping:
            _log.error("the front end %d ended with status %d", front_end.process.pid, status)
            await self._scheduler.add_counts([((FRONT_ENDS_LOST,), 1)])

    async def _replacing(self, front_end: FrontEnd, listener: socket.socket) -> None:
        """Replace the front end of a socket whenever it ends."""
        while True:
            settings = self._settings.runtime_settings()
            await front_end.until_it_leaves(Signs(settings.node_timeout_s, settings.hung_s))
            served = False
            while not served:
                if self._stopping:
                    return
                try:
                    front_end = await self._start(listener)
                    served = True
                except (FrontEndFailed, OSError) as error:
                    _log.error("a front end did not start: %s", error)
                    await asyncio.sleep(_AGAIN_S)


def _environment() -> dict[str, str]:
    """Return the environment without Ray's variables, which include the cluster's token."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RAY_") or name in TLS_VARIABLES
    }
