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
from engine.runtime.process.processes import resident_bytes
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
    """The mailbox of an active detector, and the task that makes all calls to the detector.

    Each front end has at most one batch here; waiting batches are executed together. Calls run one at a time,
    and snapshots begin between calls. However the task ends, every batch is answered: front ends resend
    batches that were not started to the detector's next activation.
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
        self.activation = Activation(detector_id, epoch, port, settings, report=report, wake=self._wake)
        self._waiting = WaitingBatches(settings)
        self._in_flight: list[Submission] = []
        self._since_ms = time.time_ns() // 1_000_000
        self._task: asyncio.Task[None] | None = None
        self._signal = asyncio.Event()
        self._asleep = False
        """Whether the task waits for the signal."""
        self._soon = False
        """Whether `_serve_soon` is scheduled."""
        self._failed: Exception | None = None
        """The exception that a batch raised in `_serve_soon`. The task raises it again, and ends."""
        self._due: asyncio.TimerHandle | None = None
        """Wakes the idle task when work is due, or earlier."""
        self._overdue_since_s = float("inf")
        """When, on the loop's clock, the pending tick became due; infinite if no tick is pending."""
        self._deleted = False
        self._closing = False
        self._shut_down = False
        """Whether the time allowed for answering waiting requests is over."""
        self._ended: Ended | None = None
        self._lost_because = "it did not end in time"
        self._alone = False
        """Whether the detector needs a worker of its own."""
        self._leaves = False
        """Whether it must leave this worker even if no other detector waits for its slot."""
        self._room_wanted = self.activation.schedule.room_wanted = room_wanted
        """Whether another detector waits for the slot, according to the scheduler's last note."""

    def held(self, *, activating: bool = False) -> Held:
        """Return the activation as reported to the scheduler."""
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

    # -- public ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start serving; called right after the activation."""
        self._task = self._loop.create_task(self._run(), name=f"queue of {self.detector_id}")

    def submit(self, submission: Submission) -> None:
        """Queue a batch behind all earlier ones, or refuse it."""
        if self._task is None or self._deleted:
            submission.settle(self._gone())
            return
        self._waiting.submissions.append(submission)
        # A task that is awake checks for waiting batches before it sleeps.
        if self._asleep and not self._soon:
            self._soon = True
            # Batches of other front ends may arrive in the same iteration of the loop, and can join this one.
            self._loop.call_soon(self._serve_soon)

    def tick_if_due(self, now_us: int) -> None:
        """Queue a tick behind the waiting batches if something is due. At most one tick waits."""
        due_us = self.activation.port.executor.due_us
        if due_us is not None and due_us <= now_us and self._overdue_since_s == float("inf"):
            self._overdue_since_s = self._loop.time() - (now_us - due_us) / 1e6
            self.submit(Submission([Operation(TICK_DUE, b"")], self._ticked, self._loop.time()))

    def _ticked(self, outcome: Outcome) -> None:
        self._overdue_since_s = float("inf")
        if isinstance(outcome, Reply) and outcome.crash is not None:
            # Ticks have no front end that would report the error.
            fields = {"detector": self.detector_id, "operation": TICK_DUE}
            message = "a tick of the detector %s failed: %s"
            _log.error(message, self.detector_id, outcome.crash.detail, extra={"fields": fields})

    def figures(self) -> DetectorFigures:
        """Return the figures of the queue and, as far as known, of the detector."""
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
        self._wake()

    def move(self, *, alone: bool) -> None:
        """Passivate the detector after its turn; if `alone`, it is then activated in a worker of its own."""
        self._alone, self._leaves = alone, True
        self.make_room(wanted=self._room_wanted)

    async def fork(self, fork_id: str) -> bool:
        """Make the folder of a fork: a new detector with the current rules and state of this one.

        Returns False, and does nothing, if the detector is no longer here. Raises StorageError.
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

        If the detector could not be saved, returns the reason.
        """
        self._closing = True
        self._wake()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._settings.shutdown_s)
        self._shut_down = True
        self._refuse_waiting()
        await self._stop_within(self._settings.hung_s)
        return self._lost_because if self.activation.reporter.at_risk else None

    # -- the task --------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Wake the task if it sleeps."""
        self._signal.set()

    async def _stop_within(self, seconds: float) -> None:
        """Wait for the task to end; cancel it after some seconds."""
        task = self._task
        if task is None:
            return
        self._wake()
        await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        await asyncio.wait({task})

    async def _run(self) -> None:
        hung = False
        try:
            while self._ended is None:
                await self._step()
        except asyncio.CancelledError:
            # `_stop_within` cancelled it: a call did not return in time.
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
                self._ended = Ended(resident_bytes=resident_bytes())
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
            # The state in memory is ahead of the durable one, so it must not answer any more.
            count = FENCED if isinstance(error, Fenced) else JOURNAL_FAILED
            # The next activation makes a new claim, but the contents of the removed files are lost.
            removed = str(error) if isinstance(error, ClaimRemoved) else None
            activation.reporter.tell(counts={count: 1}, problem=str(error), removed=removed)
            self._lose(str(error))

    def _lose(self, reason: str) -> None:
        """End the task, because the detector's state must not answer any more."""
        self._lost_because = reason
        self._ended = Ended(reason)

    async def _passivate(self) -> None:
        journal = not self._closing and self.activation.schedule.has_journal
        # What is due in a read-only detector is not known.
        due_us = 0 if self.activation.schedule.read_only else self.activation.port.executor.due_us
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
            self._due = self._loop.call_at(due_s, self._wake_when_due)
        self._signal.clear()
        self._asleep = True
        await self._signal.wait()
        self._asleep = False

    def _wake_when_due(self) -> None:
        # Requests may have postponed the due work; the task then sets another timer.
        self._due = None
        self._signal.set()

    def _serve_soon(self) -> None:
        """Execute the waiting batches if they are small: waking the task costs more. Else wake the task."""
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
                assert self._due is not None, "the task sets the timer before it sleeps"
                if not self._waiting and self._ended is None and schedule.next_due_s() >= self._due.when():
                    return
        except Exception as error:  # noqa: BLE001 -- the task ends for it
            settle(taken, error)
            self._failed = error
        self._wake()

    async def _serve(self) -> None:
        """Execute the waiting batches together, and pass the answers on."""
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
        """Update the schedule from a reply, report it, and answer the batches that it belongs to."""
        now_s, activation = self._loop.time(), self.activation
        is_used = activation.reporter.note_reply(batch, reply, now_s)
        activation.schedule.note_batch(reply, now_s, is_used=is_used)
        self._waiting.answer(taken, reply, now_s)
        if reply.crash is not None and reply.crash.lost:
            self._lose("an operation broke the engine")

    def _gone(self) -> Exception:
        """Return the error for batches that arrive too late to be executed here."""
        if self._deleted:
            return no_such_detector(self.detector_id)
        return shutting_down() if self._shut_down else MOVED

    def _refuse_waiting(self) -> None:
        self._waiting.refuse(self._gone())
