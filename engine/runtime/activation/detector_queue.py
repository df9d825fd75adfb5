"""The queue of one detector, and the one task that serves it, a batch at a time."""

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
"""How often an evaluation with an idempotency key is sent if the worker's process dies."""

_IDS_TOLD = 10
"""How many ids of requests in flight a log line shows."""


class DetectorQueue:
    """A detector's mailbox, and the task that makes every call to the detector's worker.

    So at most one batch is in flight, snapshots begin between batches, and requests that arrive during an
    activation or passivation wait. Every request is answered, however the task ends.
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
        """Whether the time allowed for answering waiting requests is over."""
        self._lost_because = "it did not end in time"
        self._trouble = ""
        self._trouble_until_s = 0.0

    @property
    def busy(self) -> bool:
        """Whether requests wait or are in flight."""
        return bool(self._in_flight) or len(self._mailbox) > 0

    @property
    def active(self) -> bool:
        """Whether the detector is active in a worker."""
        return self._activation.active

    @property
    def forgettable(self) -> bool:
        """Whether a new queue could replace this one without loss."""
        return self._task is None and not self.busy and self._loop.time() >= self._trouble_until_s

    @property
    def activates_fast(self) -> bool:
        """Whether the detector can be activated again faster than a process starts."""
        return self._activation.activates_fast

    @property
    def used_at_s(self) -> float:
        """When the last batch ended."""
        return self._activation.used_at_s

    # -- what others call ------------------------------------------------------------------------------------

    def submit(self, operation: Operation, request_id: str = "") -> Request:
        """Queue an operation behind all earlier ones; its answer arrives in the request's future.

        Raises Refusal 1200 and DetectorUnavailable, as the future does. The caller releases the request in
        the end, answered or not. An operation that is in flight at its release may still be executed.
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
        """Note that another detector waits for the slot."""
        self._activation.room_wanted = True
        self._stir()

    async def delete(self) -> None:
        """Refuse waiting requests with 1200, let those in flight end, and drop the detector unsaved."""
        self._deleted = True
        self._refuse_waiting(lambda: no_such_detector(self.detector_id))
        await self._stop_within(self._settings.hung_s)

    async def close(self) -> str | None:
        """Answer waiting requests for at most `drain_s`, save the detector, and free its worker.

        Returns the reason if the detector could not be saved.
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
        """Refuse waiting requests and those in flight. The task continues, and `close` still saves."""
        self._closing = self._drained = True
        self._refuse_waiting(shutting_down)
        for request in self._in_flight:
            _fail(request, outcome_unknown("the server is shutting down"))
        self._stir()

    # -- the task --------------------------------------------------------------------------------------------

    def _stir(self) -> None:
        """Wake the task if it sleeps; start it if requests wait."""
        if self._task is not None:
            self._signal.set()
        elif len(self._mailbox):
            self._task = self._loop.create_task(self._run(), name=f"queue of {self.detector_id}")

    async def _stop_within(self, seconds: float) -> None:
        """End the task: at once if it only waits for a worker, otherwise when it is done or time is up."""
        task = self._task
        if task is None:
            return
        if self._activation.active:
            self._stir()
            await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        await asyncio.wait({task})
        # It may have been cancelled before its first step.
        self._task = None

    async def _run(self) -> None:
        try:
            while await self._step():
                pass
        except asyncio.CancelledError:
            # The canceller has answered the waiting requests, and nobody awaits this task's result.
            pass
        except Exception:  # noqa: BLE001 -- every request must be answered
            self._refuse_for_now(self._reference("the queue failed"))
        finally:
            self._activation.lose(self)
            self._task = None
            if self._deleted or self._drained:
                # Requests that were in flight, and that were to be sent again.
                self._refuse_waiting(self._gone)
            if self._timer is not None and not len(self._mailbox):
                self._timer.cancel()
                self._timer = None
            self._passivated(self)

    async def _step(self) -> bool:
        """Do the next thing due; False if nothing is left to do."""
        activation = self._activation
        try:
            if activation.dead:
                # It answered its last batch and died before the watcher reported it.
                raise ActorDied("it died after its last answer")  # noqa: TRY301 -- as from a call
            if self._deleted:
                await activation.discard(self)
                return False
            now_s = self._loop.time()
            busy = len(self._mailbox) > 0
            if busy and activation.active and activation.should_reactivate(now_s):
                await activation.discard(self)
            elif not activation.active:
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
            _log.warning("the detector %s lost its worker: %s", self.detector_id, error)
            self._services.counts[ACTORS_LOST] += 1
            self._lost_because = f"its process was lost: {error}"
            activation.died(self)
        except StorageError as error:
            # Its state is ahead of what is durable, so it must not answer any more.
            self._services.counts[FENCED if isinstance(error, Fenced) else JOURNAL_FAILED] += 1
            self._services.trouble(self.detector_id, str(error))
            if isinstance(error, ClaimRemoved):
                # Activating again removes the obstacle, but the data of the removed files is lost.
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
        """Note that the worker died. If a call is in flight, the call's error reports it instead."""
        if not self._in_flight:
            self._services.counts[ACTORS_LOST] += 1
            self._lost_because = "its process was lost"
            self._activation.died(self)
            self._stir()

    async def _activate(self) -> None:
        """Activate the detector, or refuse all waiting requests with the reason why that failed."""
        try:
            if not await self._activation.activate(self, lambda: len(self._mailbox) > 0):
                self._deleted = True
                self._refuse_waiting(lambda: no_such_detector(self.detector_id))
        except ActorDied:
            self._refuse_for_now("the processes that tried to activate it died")
        except StorageError as error:
            self._services.counts[ACTIVATIONS_FAILED] += 1
            self._services.trouble(self.detector_id, f"it cannot be activated: {error}")
            self._refuse_for_now(str(error))
        except DetectorUnavailable as error:
            self._refuse_for_now(error.message)
        except Exception:  # noqa: BLE001 -- the worker's error is logged and must not stop the queue
            self._refuse_for_now(self._reference("activation failed"))

    async def _serve(self) -> None:
        """Send waiting requests as the next batch, and pass the answers on."""
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
            said = "detector %s: its process died during requests"
            _log.warning(said, self.detector_id, extra={"fields": self._fields()})
            # A request with a key is safe to send again: if it was executed, its first answer is returned.
            self._mailbox.put_back([one for one in batch if one.operation.key and one.sent < _SENT_MAX])
            raise
        except WriteFailed as error:
            self._refuse_batch(batch, f"nothing was evaluated: {error}")
            raise
        except StorageError as error:
            unknown = str(error)
            raise
        except Exception:  # noqa: BLE001 -- the worker's error is logged, and the callers are answered
            refused = Refused((Entry(INTERNAL, self._reference("the worker failed")),))
            for request in batch:
                _settle(request, refused)
            # Its state is unknown now.
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
            assert done, "a reply has at least one answer"
            # The reply was full; the remaining operations were not started.
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
        """Log the exception in flight, and return the message that refers callers to it."""
        said = f"an internal error; its reference in the log is {secrets.token_hex(6)}"
        extra = {"fields": self._fields()}
        _log.exception("detector %s, %s: %s", self.detector_id, what, said, extra=extra)
        return said

    def _fields(self) -> dict[str, str]:
        """Return the log fields: the detector, and a few of the requests in flight."""
        ids = [request.request_id for request in self._in_flight if request.request_id]
        more = f" and {len(ids) - _IDS_TOLD} more" if len(ids) > _IDS_TOLD else ""
        return {"detector": self.detector_id, "requests": " ".join(ids[:_IDS_TOLD]) + more}

    def _check_open(self, now_s: float) -> None:
        if self._deleted:
            raise no_such_detector(self.detector_id)
        if now_s < self._trouble_until_s:
            raise self._in_trouble()

    def _refuse_for_now(self, reason: str) -> None:
        """Refuse all waiting requests, and new ones for `retry_s`, with the reason for the failure."""
        self._trouble = reason
        self._trouble_until_s = self._loop.time() + self._settings.retry_s
        self._loop.call_at(self._trouble_until_s, self._passivated, self)
        self._refuse_waiting(self._in_trouble)

    def _in_trouble(self) -> DetectorUnavailable:
        message = f"the detector cannot be activated now: {self._trouble}"
        return DetectorUnavailable(STARTING, message, self._settings.retry_s)

    def _gone(self) -> Exception:
        return no_such_detector(self.detector_id) if self._deleted else shutting_down()

    def _refuse_waiting(self, make: Callable[[], Exception]) -> None:
        for request in self._mailbox.drain():
            _fail(request, _was_sent() if request.sent and not self._deleted else make())

    def _expire(self) -> None:
        """Answer the requests past their deadline, and schedule the next check."""
        self._timer = None
        now_s = self._loop.time()
        self._expire_waiting(now_s)
        # Requests in flight arrived first, so their deadlines are earlier than those of waiting ones.
        next_s = self._mailbox.first_deadline_s()
        for request in reversed(self._in_flight):
            if request.deadline_s <= now_s:
                _fail(request, outcome_unknown("the deadline passed"))
            else:
                next_s = request.deadline_s
        if next_s is not None:
            self._timer = self._loop.call_at(next_s, self._expire)

    def _expire_waiting(self, now_s: float) -> None:
        """Answer the requests that were not sent by their deadline; they are never sent."""
        state = "was busy with earlier requests" if self._activation.active else "was starting"
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
    """Return the error of a request that waits to be sent again: the first attempt may have succeeded."""
    return outcome_unknown("the detector's process died")
