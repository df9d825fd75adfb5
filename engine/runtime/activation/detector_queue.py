"""The queue of the active detector, and the one task that serves it, a batch at a time."""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from engine.runtime.activation.activation import Activation
from engine.runtime.activation.detector_thread import DetectorThread
from engine.runtime.activation.loads import Rates
from engine.runtime.contract.errors import ActorDied, no_such_detector, outcome_unknown, shutting_down
from engine.runtime.contract.figures import DetectorFigures
from engine.runtime.contract.measures import DETECTORS_LOST, FENCED, JOURNAL_FAILED
from engine.runtime.contract.requests.calls import Activated, Ended, Held, Reply, Report
from engine.runtime.contract.requests.operations import TICK_DUE, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.server_connection import (
    MOVED,
    Outcome,
    Submission,
    WaitingBatches,
    operations_of,
    settle,
)
from snapshots.errors import ClaimRemoved, Fenced, StorageError

_log = logging.getLogger(__name__)


class DetectorQueue:
    """The active detector's mailbox, and the task that makes every call to the detector.

    Each front end has at most one batch here, and those that wait are executed together. So one call is under
    way at a time, and snapshots begin between calls. However the task ends, every batch is answered: front
    ends send what still waited to where the detector is activated next.
    """

    activated: asyncio.Task[Activated]
    """The activation, under way or complete."""

    def __init__(
        self,
        detector_id: str,
        epoch: int,
        port: DetectorThread,
        settings: RuntimeSettings,
        report: Callable[[Report], None],
        *,
        room_wanted: bool = False,
    ) -> None:
        self.detector_id = detector_id
        self.epoch = epoch
        self.rates = Rates()
        """How busy it was in the last seconds."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self.activation = Activation(detector_id, epoch, port, settings, report=report, stir=self._stir)
        self._waiting = WaitingBatches(settings)
        self._in_flight: list[Submission] = []
        self._since_ms = time.time_ns() // 1_000_000
        self._task: asyncio.Task[None] | None = None
        self._signal = asyncio.Event()
        self._asleep = False
        """Whether the task waits for the signal."""
        self._soon = False
        """Whether `_serve_soon` is about to look at what waits."""
        self._failed: Exception | None = None
        """The exception that a batch has raised in `_serve_soon`; the task ends because of it."""
        self._due: asyncio.TimerHandle | None = None
        """Wakes the idle task when something is due, or earlier."""
        self._overdue_since_s = float("inf")
        """Since when, on the loop's clock, something has been due for which a tick waits or is under way."""
        self._deleted = False
        self._closing = False
        self._shut_down = False
        """Whether the time allowed for answering waiting requests is over."""
        self._ended: Ended | None = None
        self._lost_because = "it did not end in time"
        self._alone = False
        """Whether the detector needs a worker of its own."""
        self._leaves = False
        """Whether it leaves this worker, even if no other one waits for its slot."""
        self._room_wanted = self.activation.schedule.room_wanted = room_wanted
        """Whether another detector waits for the slot, as the scheduler last said."""

    def held(self, *, activating: bool = False) -> Held:
        """Return the activation as the scheduler should see it."""
        reporter = self.activation.reporter
        return Held(
            self.detector_id,
            self.epoch,
            activating=activating,
            room_wanted=self._room_wanted,
            at_risk=reporter.at_risk,
            problem=reporter.problem,
            newest_firing=self.figures().newest_firing,
        )

    # -- what others call ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to serve, right after the activation."""
        self._task = self._loop.create_task(self._run(), name=f"queue of {self.detector_id}")

    def submit(self, submission: Submission) -> None:
        """Queue a batch behind all earlier ones, or refuse it."""
        if self._task is None or self._deleted:
            submission.settle(self._gone())
            return
        self._waiting.submissions.append(submission)
        # A task that is awake looks at what waits before it sleeps.
        if self._asleep and not self._soon:
            self._soon = True
            # Not at once: batches of other front ends may arrive in the same turn of the loop.
            self._loop.call_soon(self._serve_soon)

    def tick_if_due(self, now_us: int) -> None:
        """Tick the detector after the batches that wait, if something is due. At most one tick waits."""
        due_us = self.activation.port.executor.due_us
        if due_us is not None and due_us <= now_us and self._overdue_since_s == float("inf"):
            self._overdue_since_s = self._loop.time() - (now_us - due_us) / 1e6
            self.submit(Submission([Operation(TICK_DUE, b"")], self._ticked, self._loop.time()))

    def _ticked(self, outcome: Outcome) -> None:
        self._overdue_since_s = float("inf")
        if isinstance(outcome, Reply) and outcome.crash is not None:
            # No front end reports it.
            fields = {"detector": self.detector_id, "operation": TICK_DUE}
            message = "a tick of the detector %s failed: %s"
            _log.error(message, self.detector_id, outcome.crash.detail, extra={"fields": fields})

    def figures(self) -> DetectorFigures:
        """Return what waits, and what the detector holds as far as that is known."""
        unanswered = [one for one in (*self._in_flight, *self._waiting.submissions) if not one.done]
        held = self.activation.port.executor.figures() or DetectorFigures(self.detector_id, self.epoch)
        return msgspec.structs.replace(
            held,
            epoch=self.epoch,
            since_ms=self._since_ms,
            events_per_s=round(self.rates.events_per_s, 1),
            cpu=round(self.rates.cpu, 3),
            waiting=sum(len(one.operations) for one in unanswered),
            waiting_s=max((self._loop.time() - one.since_s for one in unanswered), default=0.0),
            overdue_s=max(0.0, self._loop.time() - self._overdue_since_s),
        )

    def make_room(self, *, wanted: bool = True) -> None:
        """Note whether another detector waits for the slot."""
        self._room_wanted = wanted
        self.activation.schedule.room_wanted = wanted or self._leaves
        self._stir()

    def move(self, *, alone: bool) -> None:
        """Passivate it after its turn, to be activated elsewhere; if `alone`, in a worker of its own."""
        self._alone, self._leaves = alone, True
        self.make_room(wanted=self._room_wanted)

    async def fork(self, fork_id: str) -> bool:
        """Make the folder of another detector from the rules and the state that this one has now.

        Returns False if the detector is no longer here, and nothing was done. Raises StorageError.
        """
        if self._task is None or self._deleted:
            return False
        return await self.activation.fork(fork_id)

    async def delete(self) -> None:
        """Refuse waiting requests with 1200, let those in flight end, and drop the detector unsaved."""
        self._deleted = True
        self._refuse_waiting()
        await self._stop_within(self._settings.hung_s)

    async def close(self) -> str | None:
        """Answer waiting requests for at most `shutdown_s`, then save and drop the detector.

        Returns the reason if the detector could not be saved.
        """
        self._closing = True
        self._stir()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._settings.shutdown_s)
        self._shut_down = True
        self._refuse_waiting()
        await self._stop_within(self._settings.hung_s)
        return self._lost_because if self.activation.reporter.at_risk else None

    # -- the task --------------------------------------------------------------------------------------------

    def _stir(self) -> None:
        """Wake the task if it sleeps."""
        self._signal.set()

    async def _stop_within(self, seconds: float) -> None:
        """End the task when it is done or time is up."""
        task = self._task
        if task is None:
            return
        self._stir()
        await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        await asyncio.wait({task})

    async def _run(self) -> None:
        hung = False
        try:
            while self._ended is None:
                await self._step()
        except asyncio.CancelledError:
            # The code that cancelled it has answered the waiting requests; nobody awaits the result.
            hung = True
        except Exception as error:  # noqa: BLE001 -- every batch must be answered
            fields = {"detector": self.detector_id}
            _log.exception("the queue of the detector %s failed", self.detector_id, extra={"fields": fields})
            self._lost_because = f"an internal error: {type(error).__name__}: {error}"
        finally:
            self._task = None
            self.activation.lose()
            if self._due is not None:
                self._due.cancel()
            self._refuse_waiting()
            hung = hung or self.activation.hung
            ended = Ended(self._lost_because, hung=hung) if self._ended is None or hung else self._ended
            self.activation.reporter.tell_end(ended)

    async def _step(self) -> None:
        activation, schedule = self.activation, self.activation.schedule
        try:
            if self._failed is not None:
                raise self._failed
            if activation.fenced:
                raise ActorDied("a later owner has the detector")  # noqa: TRY301 -- as from a call
            now_s = self._loop.time()
            busy = len(self._waiting) > 0
            if self._deleted or (busy and schedule.should_reactivate(now_s)):
                await activation.discard()
                self._ended = Ended()
            elif (self._closing and not busy) or schedule.should_passivate(
                now_s, busy=busy, forking=activation.forking
            ):
                await self._passivate()
            elif schedule.should_sync(now_s):
                await activation.sync()
            elif schedule.should_save(now_s):
                await activation.save()
            elif activation.fork_waits:
                await activation.begin_fork()
            elif busy:
                await self._serve()
            else:
                await self._idle()
        except ActorDied as error:
            fields = {"detector": self.detector_id}
            _log.warning("the detector %s is lost: %s", self.detector_id, error, extra={"fields": fields})
            activation.reporter.tell(counts={DETECTORS_LOST: 1})
            activation.reporter.note_synced()
            self._lose(f"its process was lost: {error}")
        except StorageError as error:
            # Its state is ahead of what is durable, so it must not answer any more.
            count = FENCED if isinstance(error, Fenced) else JOURNAL_FAILED
            # The next activation makes a new claim, but what the removed files held is lost.
            removed = str(error) if isinstance(error, ClaimRemoved) else None
            activation.reporter.tell(counts={count: 1}, problem=str(error), removed=removed)
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        """End the task, because the detector's state must not answer any more."""
        self._lost_because = reason
        self._ended = Ended(reason)

    async def _passivate(self) -> None:
        journal = not self._closing and self.activation.schedule.has_journal
        due_us = self.activation.port.executor.due_us
        outcome = await self.activation.passivate(empty_journal=self._closing)
        if isinstance(outcome, int):
            self._ended = Ended(resident_bytes=outcome, alone=self._alone, journal=journal, due_us=due_us)
        elif self._closing:
            self._lose(outcome)

    async def _idle(self) -> None:
        due_s = self.activation.schedule.next_due_s()
        if self._due is None or due_s < self._due.when():
            if self._due is not None:
                self._due.cancel()
            self._due = self._loop.call_at(due_s, self._stir_when_due)
        self._signal.clear()
        self._asleep = True
        await self._signal.wait()
        self._asleep = False

    def _stir_when_due(self) -> None:
        # Requests may have postponed what was due. Then the task sets another timer.
        self._due = None
        self._signal.set()

    def _serve_soon(self) -> None:
        """Execute what waits if it is small: waking the task would take longer. The task does the rest."""
        self._soon = False
        if not self._asleep or self._signal.is_set() or not (taken := self._waiting.take()):
            return
        schedule, batch = self.activation.schedule, operations_of(taken)
        try:
            reply = None if schedule.read_only else self.activation.port.handle_at_once(batch)
            if reply is None:
                self._waiting.put_back(taken)
            else:
                self._pass_on(taken, batch, reply)
                assert self._due is not None, "it is set before the task sleeps"
                if not self._waiting and self._ended is None and schedule.next_due_s() >= self._due.when():
                    return
        except Exception as error:  # noqa: BLE001 -- the task ends for it
            settle(taken, error)
            self._failed = error
        self._stir()

    async def _serve(self) -> None:
        """Execute what waits as the next batch, and pass the answers on."""
        taken = self._waiting.take()
        if not taken:
            return
        self._in_flight, batch = taken, operations_of(taken)
        try:
            self._pass_on(taken, batch, await self.activation.ask(batch))
        except ActorDied as error:
            settle(taken, outcome_unknown(str(error)))
            raise
        except asyncio.CancelledError:
            settle(taken, outcome_unknown("the detector's process ended"))
            raise
        except Exception as error:
            settle(taken, error)
            raise
        finally:
            self._in_flight = []

    def _pass_on(self, taken: list[Submission], batch: list[Operation], reply: Reply) -> None:
        """Note what a reply means, and give each of the batches executed together its answers."""
        now_s, activation = self._loop.time(), self.activation
        is_used = activation.reporter.note_reply(batch, reply, now_s)
        activation.schedule.note_batch(reply, now_s, is_used=is_used)
        self._waiting.answer(taken, reply, now_s)
        if reply.crash is not None and reply.crash.lost:
            self._lose("an operation broke the engine")

    def _gone(self) -> Exception:
        """Return the error for batches that are not executed here any more."""
        if self._deleted:
            return no_such_detector(self.detector_id)
        return shutting_down() if self._shut_down else MOVED

    def _refuse_waiting(self) -> None:
        self._waiting.refuse(self._gone())
