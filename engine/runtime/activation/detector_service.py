"""Serves front ends and the scheduler in a worker: calls to its detectors, and their activation."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from engine.runtime.activation.detector_queue import DetectorQueue
from engine.runtime.activation.detector_thread import DetectorThread
from engine.runtime.activation.loads import RateMeter, Totals, leaver
from engine.runtime.concurrency.background import Background
from engine.runtime.concurrency.beats import LoopLag
from engine.runtime.contract.errors import ActorDied, Superseded
from engine.runtime.contract.figures import ProcessFigures, WorkerAnswer, WorkerFigures
from engine.runtime.contract.measures import Measures
from engine.runtime.contract.requests.calls import (
    LEFT,
    MAKE_ROOM,
    REPORT,
    Activated,
    Ended,
    Held,
    Report,
    encode_report,
)
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.process.log_records import LOGGED, Logged
from engine.runtime.process.processes import resident_bytes, usage
from engine.runtime.transport.link import Link, Note
from engine.runtime.transport.server_connection import MOVED, ServerConnection, Submission
from snapshots.files import wall_clock_us

_log = logging.getLogger(__name__)

_ABANDONED_FACTOR = 2
"""After `abandoned_s`, an abandoned directory tells its workers to save. A worker without connections does so
by itself after this multiple of it."""

_USED_TOLD_S = 0.1
"""How long reports that detectors are in use are collected before they are sent together."""


class Node(NamedTuple):
    """Where the worker runs: the id and the address of the Ray node."""

    id: str = ""
    address: str = ""


class DetectorService:
    """Serves any number of connections. The latest one to send a command is the scheduler's.

    Each command carries the term of its scheduler. Once a command of a later term has arrived, commands of
    earlier terms are refused: their scheduler was replaced, and its last commands may arrive late.

    A batch names the epoch of the activation that it is meant for; epochs are unique in a data folder. If
    that activation is not here, the batch is refused as MOVED. The worker outlives its scheduler: it finishes
    the calls it has begun, and the next scheduler adopts it.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        make_port: Callable[[], DetectorThread],
        measures: Measures,
        node: Node = Node(),  # noqa: B008 -- it is immutable
        *,
        now_us: Callable[[], int] = wall_clock_us,
        abandoned: Callable[[], object] = lambda: None,
        show: Callable[[list[str]], object] = lambda _: None,
    ) -> None:
        """`make_port` makes the port for one activation of one detector.

        `abandoned` is called when the worker has saved everything after too long without any connection.
        `show` is called with the ids of the active detectors.
        """
        self._settings = settings
        self._make_port = make_port
        self._measures = measures
        self._node = node
        self._now_us = now_us
        self._abandoned = abandoned
        self._show = show
        self._lag = LoopLag()
        self._leaving: asyncio.Task[None] | None = None
        self.queues: dict[int, DetectorQueue] = {}
        """The queues of the active detectors, by the epochs of their activations."""
        self.servers: dict[ServerConnection, str] = {}
        """The open connections, each with its transport."""
        self._scheduler: ServerConnection | None = None
        self._term = 0
        """The latest term among the commands received."""
        self._activating: dict[int, DetectorQueue] = {}
        """The queues of the detectors that are being activated, by the epochs of their activations."""
        self._discards = Background()
        self._meter = RateMeter()
        self._repeated: set[Callable[[], None]] = set()
        """The work that is repeated while there are detectors."""
        self._used: dict[int, bytes] = {}
        """The encoded reports that detectors are in use, not sent yet, by the epochs of their activations."""

    def link(self, transport: str = "unix") -> Link:
        """Make the link of a new connection over `unix`, `tcp` or `tls`."""
        server = ServerConnection({}, self._submit, noted=self._noted, lost=lambda: self._lost(server))
        commands: dict[str, Callable[..., Awaitable[Any]]] = {
            "activate": self._activate,
            "held": self._held,
            "delete": self._delete,
            "close": self._close,
            "fork": self._fork,
        }
        server.methods = {
            **{name: partial(self._command, server, command) for name, command in commands.items()},
            "figures": self._figures,
        }
        self.servers[server] = transport
        return server.link()

    def has_one(self) -> bool:
        """Whether one detector is active."""
        return len(self.queues) == 1

    def more_waits(self) -> bool:
        """Whether more than one batch or call is unanswered."""
        return sum([server.under_way for server in self.servers]) > 1

    def log(self, logged: Logged) -> bool:
        """Send a record to the scheduler, for the service's log; return False without a scheduler."""
        scheduler = self._scheduler
        if scheduler is None or not scheduler.connected:
            return False
        scheduler.note(LOGGED, msgspec.msgpack.encode(logged))
        return True

    def _lost(self, server: ServerConnection) -> None:
        del self.servers[server]
        if not self.servers:
            loop = asyncio.get_running_loop()
            loop.call_later(_ABANDONED_FACTOR * self._settings.abandoned_s, self._leave_if_abandoned)

    def _leave_if_abandoned(self) -> None:
        if not self.servers and self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())

    async def _leave(self) -> None:
        await asyncio.gather(*(queue.close() for queue in self.queues.values()))
        self._abandoned()

    def _submit(self, epoch: int, submission: Submission) -> None:
        if (queue := self.queues.get(epoch)) is None:
            submission.settle(MOVED)
        else:
            queue.submit(submission)

    async def _command(
        self,
        scheduler: ServerConnection,
        command: Callable[..., Awaitable[Any]],
        term: int,
        *arguments: object,
    ) -> object:
        """Execute a command. Raises Superseded if a later scheduler commands this worker."""
        if term < self._term:
            message = f"a later directory commands this worker: its term is {self._term}, not {term}"
            _log.warning("a command was refused: %s", message)
            raise Superseded(message)
        self._term, self._scheduler = term, scheduler
        return await command(*arguments)

    async def _activate(self, detector_id: str, epoch: int, room_wanted: bool) -> Activated:
        """Activate a detector. A repeated command returns the result of the first."""
        queue = self.queues.get(epoch) or self._activating.get(epoch)
        if queue is None:
            port = self._make_port()
            report = partial(self._report, epoch, port)
            queue = DetectorQueue(detector_id, epoch, port, self._settings, report, room_wanted=room_wanted)
            self._activating[epoch] = queue
            queue.activated = asyncio.create_task(self._begin(queue, at_once=room_wanted))
        # The activation continues if the scheduler is lost; its successor adopts the detector.
        return await asyncio.shield(queue.activated)

    async def _begin(self, queue: DetectorQueue, *, at_once: bool) -> Activated:
        try:
            activated = await queue.activation.activate()
        finally:
            del self._activating[queue.epoch]
        self.queues[queue.epoch] = queue
        self._show_detectors()
        queue.start()
        settings = self._settings
        if settings.tick_s and at_once:
            # It may have been activated for this tick alone, and then leaves as soon as it can.
            queue.tick_if_due(self._now_us())
        for every_s, work in ((settings.load_s, self._measure), (settings.tick_s, self._tick)):
            if every_s and work not in self._repeated:
                self._repeated.add(work)
                self._repeat(every_s, work)
        return activated

    def _repeat(self, every_s: float, work: Callable[[], None]) -> None:
        """Do some work now, and periodically as long as there are detectors."""
        if not self.queues:
            self._repeated.discard(work)
            return
        work()
        asyncio.get_running_loop().call_later(every_s, self._repeat, every_s, work)

    def _tick(self) -> None:
        """Tick the detectors in which something is due."""
        now_us = self._now_us()
        for queue in self.queues.values():
            queue.tick_if_due(now_us)

    def _measure(self) -> None:
        """Measure how busy the detectors are, and move one away if it starves the others in this worker."""
        totals = {
            epoch: Totals(queue.figures().events, queue.activation.port.cpu_s)
            for epoch, queue in self.queues.items()
        }
        rates = self._meter.measure(asyncio.get_running_loop().time(), totals)
        for epoch, measured in rates.items():
            self.queues[epoch].rates = measured
        figures = [self.queues[epoch].figures() for epoch in rates]
        found = leaver(figures, resident_bytes(), self._settings.actor_bytes_max)
        if found is not None:
            leaving = self.queues[found.epoch].detector_id
            _log.warning(
                "the detector %s leaves its worker", leaving, extra={"fields": {"detector": leaving}}
            )
            self.queues[found.epoch].move(alone=found.alone)

    def _report(self, epoch: int, port: DetectorThread, report: Report) -> None:
        encoded = encode_report(report)
        if report.used:
            # Waking the directory costs as much as an event, so reports of several detectors share a wake-up.
            if not self._used:
                asyncio.get_running_loop().call_later(_USED_TOLD_S, self._tell_used)
            self._used[epoch] = encoded
            return
        if report.ended is None:
            self._tell(encoded)
            return
        self._over(epoch, port, report.ended)
        for server in self.servers:
            if server is not self._scheduler:
                server.note(LEFT, str(epoch).encode())
        # The scheduler may end the process at once, so answers and notes are sent first.
        asyncio.get_running_loop().call_soon(self._tell, encoded)

    def _tell_used(self) -> None:
        used, self._used = self._used, {}
        for encoded in used.values():
            self._tell(encoded)

    def _tell(self, report: bytes) -> None:
        if self._scheduler is not None:
            self._scheduler.note(REPORT, report)

    def _over(self, epoch: int, port: DetectorThread, ended: Ended) -> None:
        """Forget an activation. The state that a failed one left in memory is dropped."""
        self.queues.pop(epoch, None)
        self._used.pop(epoch, None)
        self._show_detectors()
        if ended.reason is not None and not ended.hung:
            self._discards.begin(_discard(port))

    def _show_detectors(self) -> None:
        self._show([queue.detector_id for queue in self.queues.values()])

    async def _held(self) -> list[Held]:
        """Return all activations, those in progress included."""
        # A connecting scheduler calls a method through Ray, which changes the process title.
        self._show_detectors()
        beginning = [queue.held(activating=True) for queue in self._activating.values()]
        return [*beginning, *(queue.held() for queue in self.queues.values())]

    async def _delete(self, epoch: int) -> None:
        if (beginning := self._activating.get(epoch)) is not None:
            await asyncio.wait({beginning.activated})
        if (queue := self.queues.get(epoch)) is not None:
            await queue.delete()

    async def _close(self, epoch: int) -> str | None:
        queue = self.queues.get(epoch)
        return None if queue is None else await queue.close()

    async def _fork(self, epoch: int, fork_id: str) -> bool:
        queue = self.queues.get(epoch)
        return queue is not None and await queue.fork(fork_id)

    async def _figures(self) -> WorkerAnswer:
        process = ProcessFigures(*usage())
        figures = WorkerFigures(
            name="",
            answers=True,
            node=self._node.id,
            address=self._node.address,
            process=process,
            connections=Counter(self.servers.values()),
            detectors=[queue.figures() for queue in self.queues.values()],
            loop_lag_s=self._lag.longest_s,
        )
        return WorkerAnswer(figures, msgspec.structs.replace(self._measures, cpu_s=process.cpu_s))

    def _noted(self, note: Note) -> None:
        if note.name == MAKE_ROOM:
            term, epoch, wanted = map(int, note.body.split())
            queue = self.queues.get(epoch)
            if queue is not None and term >= self._term:
                queue.make_room(wanted=bool(wanted))


async def _discard(port: DetectorThread) -> None:
    # If the process dies meanwhile, there is nothing left to drop.
    with suppress(ActorDied):
        await port.discard()
