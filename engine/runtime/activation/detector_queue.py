"""The queue of one detector, and the one task that takes from it, a batch at a time."""

import asyncio
import logging
import secrets
from collections.abc import Callable

from engine.evaluation.wire.events import Answer, Refused
from engine.language.diagnostics import Entry
from engine.runtime.activation.activation import Activation
from engine.runtime.activation.mailbox import Mailbox, Request
from engine.runtime.activation.services import Services
from engine.runtime.contract.counters import ACTIVATIONS_FAILED, ACTORS_LOST, FENCED, JOURNAL_FAILED
from engine.runtime.contract.errors import (
    INTERNAL,
    STARTING,
    ActorDied,
    DetectorUnavailable,
    no_such_detector,
    outcome_unknown,
    shutting_down,
)
from engine.runtime.contract.operations import Operation, Reply
from snapshots.errors import ClaimRemoved, Fenced, StorageError, WriteFailed

_log = logging.getLogger(__name__)

_SENT_MAX = 2
"""So often an evaluation with an idempotency key is sent, if the process that it was sent to dies."""

_IDS_TOLD = 10
"""Of the requests in flight, in a line of the log."""


class DetectorQueue:
    """A detector's queue, and the task that does all that is done with the detector.

    Nothing else ever calls its actor: so one batch is in flight at most, saving comes between batches, and
    what arrives while the detector wakes or rests simply waits. Whatever becomes of the task, every request
    is answered.
    """

    def __init__(
        self, detector_id: str, services: Services, passivated: Callable[["DetectorQueue"], None]
    ) -> None:
        self.detector_id = detector_id
        self._services = services
        self._settings = services.settings
        self._passivated = passivated
        self._loop = asyncio.get_running_loop()
        self._activation = Activation(detector_id, services, self._found_dead)
        self._mailbox = Mailbox(services.settings)
        self._in_flight: list[Request] = []
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._signal = asyncio.Event()
        self._deleted = False
        self._closing = False
        self._drained = False
        """Whether the time to answer what waits is over."""
        self._lost_because = "it did not end in time"
        self._trouble = ""
        self._trouble_until_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether anything waits or is in flight."""
        return bool(self._in_flight) or len(self._mailbox) > 0

    @property
    def awake(self) -> bool:
        """Whether an actor hosts the detector."""
        return self._activation.awake

    @property
    def forgettable(self) -> bool:
        """Whether a new queue would do as well."""
        return self._task is None and not self.busy and self._loop.time() >= self._trouble_until_s

    @property
    def activates_fast(self) -> bool:
        """Whether it can be woken again faster than a process can be started."""
        return self._activation.activates_fast

    @property
    def used_at_s(self) -> float:
        """When the last batch ended."""
        return self._activation.used_at_s

    # -- what others call ------------------------------------------------------------------------------------

    def submit(self, operation: Operation, request_id: str = "") -> Request:
        """Have an operation carried out, after all that were asked before; its answer comes to the request.

        Raises Refusal 1200 and DetectorUnavailable, as the request's future does. Whoever submits releases
        the request in the end, answered or not; what was in flight then may still be carried out.
        """
        now_s = self._loop.time()
        self._check_open(now_s)
        deadline_s = now_s + self._settings.deadline_s
        request = Request(operation, self._loop.create_future(), deadline_s, request_id=request_id)
        self._mailbox.admit(request)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s, self._expire)
        self._stir()
        return request

    def make_room(self) -> None:
        """Take note that another detector wants the place."""
        self._activation.room_wanted = True
        self._stir()

    async def delete(self) -> None:
        """Answer what waits with 1200 and what is in flight as it ends; then forget the detector, unsaved."""
        self._deleted = True
        self._refuse_waiting(lambda: no_such_detector(self.detector_id))
        await self._stop_within(self._settings.hung_s)

    async def close(self) -> str | None:
        """Answer what waits, within the time for that, save the detector, and let go of its actor.

        Gives the reason where the detector could not be saved.
        """
        self._closing = True
        self._stir()
        if self._task is None:
            return None
        await asyncio.wait({self._task}, timeout=self._settings.drain_s)
        self._drained = True
        self._refuse_waiting(shutting_down)
        await self._stop_within(self._settings.hung_s)
        return self._lost_because if self._activation.at_risk else None

    def refuse_all(self) -> None:
        """Answer what waits and what is in flight; the task goes on, and `close` still saves the detector."""
        self._closing = self._drained = True
        self._refuse_waiting(shutting_down)
        for request in self._in_flight:
            _fail(request, outcome_unknown("the server is shutting down"))
        self._stir()

    # -- the task --------------------------------------------------------------------------------------------

    def _stir(self) -> None:
        """See that the task takes note of what has changed."""
        if self._task is not None:
            self._signal.set()
        elif len(self._mailbox):
            self._task = self._loop.create_task(self._run(), name=f"queue of {self.detector_id}")

    async def _stop_within(self, seconds: float) -> None:
        """End the task: at once where it only waits for an actor, else when it is done or the time is up."""
        task = self._task
        if task is None:
            return
        if self._activation.awake:
            self._stir()
            await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        await asyncio.wait({task})
        # It may have been cancelled before it began.
        self._task = None

    async def _run(self) -> None:
        try:
            while await self._step():
                pass
        except asyncio.CancelledError:
            # Whoever cancels has answered what waits; and nobody waits for this task's own result.
            pass
        except Exception:  # noqa: BLE001 -- every request is answered, whatever it is
            self._refuse_for_now(self._reference("the queue failed"))
        finally:
            self._activation.lose(self)
            self._task = None
            if self._deleted or self._drained:
                # What was in flight by then, and was to be sent once more.
                self._refuse_waiting(self._gone)
            if self._timer is not None and not len(self._mailbox):
                self._timer.cancel()
                self._timer = None
            self._passivated(self)

    async def _step(self) -> bool:
        """Do the next thing there is to do; False when there is nothing left."""
        activation = self._activation
        try:
            if activation.dead:
                # It answered its last batch, and died before anybody took note of that.
                raise ActorDied("it died after its last answer")  # noqa: TRY301 -- as from a call
            if self._deleted:
                await activation.discard(self)
                return False
            now_s = self._loop.time()
            busy = len(self._mailbox) > 0
            if busy and activation.awake and activation.should_reactivate(now_s):
                await activation.discard(self)
            elif not activation.awake:
                if not busy or self._drained:
                    return False
                await self._activate()
            elif activation.should_passivate(now_s, busy=busy) or (self._closing and not busy):
                trouble = await activation.passivate(self, draining=self._closing)
                if trouble is not None and self._closing:
                    self._lost_because = trouble
                    return False
            elif activation.should_sync(now_s):
                await activation.sync()
            elif activation.should_save(now_s):
                await activation.save()
            elif busy:
                await self._serve()
            else:
                await self._idle()
        except ActorDied as error:
            _log.warning("the detector %s lost its actor: %s", self.detector_id, error)
            self._services.counts[ACTORS_LOST] += 1
            self._lost_because = f"its process was lost: {error}"
            activation.died(self)
        except StorageError as error:
            # What it holds is more than what will last, so it must not answer any more.
            self._services.counts[FENCED if isinstance(error, Fenced) else JOURNAL_FAILED] += 1
            self._services.trouble(self.detector_id, str(error))
            if isinstance(error, ClaimRemoved):
                # To wake again ends the trouble; what the removed files had is lost all the same.
                self._services.removed(self.detector_id, str(error))
            self._lost_because = str(error)
            activation.lose(self)
        return True

    async def _idle(self) -> None:
        self._signal.clear()
        try:
            async with asyncio.timeout_at(self._activation.next_due_s()):
                await self._signal.wait()
        except TimeoutError:
            return

    def _found_dead(self) -> None:
        """Take note that the actor died. While it is asked something, that call ends and says so too."""
        if not self._in_flight:
            self._services.counts[ACTORS_LOST] += 1
            self._lost_because = "its process was lost"
            self._activation.died(self)
            self._stir()

    async def _activate(self) -> None:
        """Wake the detector, or answer all that waits with what is in the way."""
        try:
            if not await self._activation.activate(self, lambda: len(self._mailbox) > 0):
                self._deleted = True
                self._refuse_waiting(lambda: no_such_detector(self.detector_id))
        except ActorDied:
            self._refuse_for_now("the processes that were to wake it died")
        except StorageError as error:
            self._services.counts[ACTIVATIONS_FAILED] += 1
            self._services.trouble(self.detector_id, f"it cannot be woken: {error}")
            self._refuse_for_now(str(error))
        except DetectorUnavailable as error:
            self._refuse_for_now(error.message)
        except Exception:  # noqa: BLE001 -- what the actor raised is logged, and is no reason to stop the queue
            self._refuse_for_now(self._reference("waking failed"))

    async def _serve(self) -> None:
        """Send what waits as the next batch, and pass the answers on."""
        self._expire_waiting(self._loop.time())
        batch = self._in_flight = self._mailbox.take()
        if not batch:
            return
        unknown = "the detector's process died"
        for request in batch:
            request.sent += 1
        try:
            reply = await self._activation.ask([request.operation for request in batch])
            self._pass_on(batch, reply)
        except ActorDied:
            said = "detector %s: its process died amid requests"
            _log.warning(said, self.detector_id, extra={"fields": self._fields()})
            # What has a key is known again if it was carried out: then it gets the answer that it had.
            self._mailbox.put_back([one for one in batch if one.operation.key and one.sent < _SENT_MAX])
            raise
        except WriteFailed as error:
            self._refuse_batch(batch, f"nothing was evaluated: {error}")
            raise
        except StorageError as error:
            unknown = str(error)
            raise
        except Exception:  # noqa: BLE001 -- what the actor raised is logged, and its callers are answered
            refused = Refused((Entry(INTERNAL, self._reference("the actor failed")),))
            for request in batch:
                _settle(request, refused)
            # What it holds by now is not known.
            self._activation.lose(self)
        finally:
            self._in_flight = []
            for request in batch:
                if not request.waits and not request.answer.done():
                    _fail(request, outcome_unknown(unknown))

    def _refuse_batch(self, batch: list[Request], message: str) -> None:
        for request in batch:
            _fail(request, DetectorUnavailable(STARTING, message, self._settings.retry_s))

    def _pass_on(self, batch: list[Request], reply: Reply) -> None:
        for request, answer in zip(batch, reply.answers, strict=False):
            _settle(request, answer)
        crash = reply.crash
        done = len(reply.answers)
        if crash is None:
            assert done, "a reply has one answer at least"
            # It was full, and the others were not begun.
            for request in batch[done:]:
                request.sent -= 1
            self._mailbox.put_back(batch[done:])
            return
        said = f"an internal error; its reference in the log is {crash.reference}"
        fields = {"request": batch[done].request_id, "detector": self.detector_id}
        extra = {"fields": fields, "detail": crash.detail}
        _log.error("detector %s: %s", self.detector_id, said, extra=extra)
        _settle(batch[done], Refused((Entry(INTERNAL, said),)))
        self._mailbox.put_back(batch[done + 1 :])
        self._activation.lose(self)

    # -- refusals and deadlines ------------------------------------------------------------------------------

    def _reference(self, what: str) -> str:
        """Log the error that is being handled, and give the sentence that names it to a caller."""
        said = f"an internal error; its reference in the log is {secrets.token_hex(6)}"
        extra = {"fields": self._fields()}
        _log.exception("detector %s, %s: %s", self.detector_id, what, said, extra=extra)
        return said

    def _fields(self) -> dict[str, str]:
        """Give what the log tells beside a sentence: the detector, and a few of the requests in flight."""
        ids = [request.request_id for request in self._in_flight if request.request_id]
        more = f" and {len(ids) - _IDS_TOLD} more" if len(ids) > _IDS_TOLD else ""
        return {"detector": self.detector_id, "requests": " ".join(ids[:_IDS_TOLD]) + more}

    def _check_open(self, now_s: float) -> None:
        if self._deleted:
            raise no_such_detector(self.detector_id)
        if now_s < self._trouble_until_s:
            raise self._in_trouble()

    def _refuse_for_now(self, reason: str) -> None:
        """Answer all that waits, and what comes soon, with the reason why the detector does not wake."""
        self._trouble = reason
        self._trouble_until_s = self._loop.time() + self._settings.retry_s
        self._loop.call_at(self._trouble_until_s, self._passivated, self)
        self._refuse_waiting(self._in_trouble)

    def _in_trouble(self) -> DetectorUnavailable:
        message = f"the detector cannot be woken now: {self._trouble}"
        return DetectorUnavailable(STARTING, message, self._settings.retry_s)

    def _gone(self) -> Exception:
        return no_such_detector(self.detector_id) if self._deleted else shutting_down()

    def _refuse_waiting(self, make: Callable[[], Exception]) -> None:
        for request in self._mailbox.drain():
            _fail(request, _was_sent() if request.sent and not self._deleted else make())

    def _expire(self) -> None:
        """Answer what is past its deadline, and come back at the next one."""
        self._timer = None
        now_s = self._loop.time()
        self._expire_waiting(now_s)
        # In flight is what came first: its deadlines are earlier than any that waits.
        next_s = self._mailbox.first_deadline_s()
        for request in reversed(self._in_flight):
            if request.deadline_s <= now_s:
                _fail(request, outcome_unknown("the deadline passed"))
            else:
                next_s = request.deadline_s
        if next_s is not None:
            self._timer = self._loop.call_at(next_s, self._expire)

    def _expire_waiting(self, now_s: float) -> None:
        """Answer what was not sent by its deadline; it never is."""
        state = "was busy with earlier requests" if self._activation.awake else "was starting"
        message = f"the deadline passed while the detector {state}; nothing was evaluated"
        for request in self._mailbox.expire(now_s):
            refusal = DetectorUnavailable(STARTING, message, self._settings.retry_s)
            _fail(request, _was_sent() if request.sent else refusal)


def _settle(request: Request, answer: Answer) -> None:
    if not request.answer.done():
        request.answer.set_result(answer)


def _fail(request: Request, error: Exception) -> None:
    if not request.answer.done():
        request.answer.set_exception(error)


def _was_sent() -> DetectorUnavailable:
    """Give the refusal of what waits to be sent once more: the first time it may have been carried out."""
    return outcome_unknown("the detector's process died")
