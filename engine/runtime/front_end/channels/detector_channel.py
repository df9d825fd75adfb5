"""A front end's channel to one detector: the requests that wait, and the one batch in flight."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from engine.evaluation.wire.events import Answer
from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import STARTING, DetectorUnavailable, outcome_unknown, shutting_down
from engine.runtime.contract.requests.calls import Route
from engine.runtime.contract.requests.operations import CurrentRequest, Operation, current_request
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.mailbox import COPIES, Mailbox, Request, give_answers
from engine.runtime.front_end.channels.outcomes import Outcomes
from engine.runtime.front_end.memory_budget import SMALL_BYTES_MAX, MemoryBudget
from engine.runtime.transport.link import Answered, Moved, Response
from engine.runtime.transport.link_client import LinkClient

_log = logging.getLogger(__name__)

_NOTE_S: Final = 0.25
"""How long to wait for a worker's note that the detector has left."""


Locate = Callable[[str, int, bool], Awaitable[Route]]
"""Returns the route of a detector, once it is active: see `Scheduler.route`. Raises Refusal 1200 and
DetectorUnavailable."""

Reach = Callable[[Route, "DetectorChannel"], Awaitable[LinkClient]]
"""Returns the connection to a worker, and registers the channel for its notes. Raises OSError."""


class DetectorChannel:
    """Sends the requests for one detector to the worker that has it.

    At most one batch is in flight; requests that arrive meanwhile form the next one. So a waiting request has
    certainly not been started: it can be refused, expire, or go to another worker.
    """

    def __init__(
        self,
        detector_id: str,
        settings: RuntimeSettings,
        locate: Locate,
        reach: Reach,
        memory: MemoryBudget,
        *,
        waiting_for_slots: Callable[[], int],
    ) -> None:
        """`waiting_for_slots` returns how many detectors wait for an activation slot."""
        self.detector_id = detector_id
        self._waiting_for_slots = waiting_for_slots
        self._settings = settings
        self._locate = locate
        self._reach = reach
        self._loop = asyncio.get_running_loop()
        self._memory = memory
        self._mailbox = Mailbox(settings, memory)
        self._outcomes = Outcomes(detector_id, settings, self._mailbox)
        self._in_flight: list[Request] = []
        self._in_flight_bytes = 0
        """The bytes of the batch in flight that count in the memory budget."""
        self._number = 0
        """The number of the batch in flight."""
        self._sent_at_s = 0.0
        self._checking: asyncio.Task[None] | None = None
        """The task that asks whether the detector has moved, while a batch has been in flight for long."""
        self._client: LinkClient | None = None
        """The connection to the detector's worker; None if that is unknown."""
        self._epoch = 0
        self._left_epoch = 0
        """The epoch of the latest activation that has ended or cannot be reached."""
        self._finding: asyncio.Task[None] | None = None
        self._sending = False
        """Whether `_send` is scheduled."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether requests wait or are in flight."""
        return bool(self._in_flight) or len(self._mailbox) > 0

    @property
    def _large(self) -> bool:
        """Whether the waiting requests or those in flight are large."""
        return self._mailbox.bytes + self._in_flight_bytes > SMALL_BYTES_MAX

    @property
    def unanswered(self) -> int:
        """The number of requests that wait or are in flight."""
        return len(self._in_flight) + len(self._mailbox)

    @property
    def waiting_s(self) -> float:
        """How long the oldest waiting request has waited."""
        deadline_s = self._mailbox.first_deadline_s()
        return 0.0 if deadline_s is None else self._loop.time() + self._settings.deadline_s - deadline_s

    async def call(self, operation: Operation, requests: list[Request] | None = None) -> Answer:
        """Execute an operation on the detector, after all earlier ones.

        Raises Refusal 1200; DetectorUnavailable 1401, 1501, 1502 and 1503. If the caller is cancelled, a
        waiting operation is dropped; one in flight may still be executed. The request is added to `requests`.
        """
        request = self.submit(operation, current_request())
        if requests is not None:
            requests.append(request)
        try:
            return await request.answer
        finally:
            self.release(request)

    def submit(self, operation: Operation, caller: CurrentRequest) -> Request:
        """Queue an operation behind all earlier ones. The answer arrives in the request's future.

        Raises DetectorUnavailable 1401. The caller must release the request, answered or not. An operation in
        flight at its release may still be executed.
        """
        deadline_s = self._loop.time() + self._settings.deadline_s
        request = Request(operation, self._loop.create_future(), deadline_s, caller=caller)
        self._mailbox.admit(request)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline_s, self._expire)
        if not self._in_flight and not self._sending:
            self._send_next()
        return request

    def release(self, request: Request) -> None:
        """Drop a request that is answered or whose caller is gone."""
        self._mailbox.release(request)
        request.tell_times(request.deadline_s - self._settings.deadline_s, self._loop.time())
        if self._finding is not None and not len(self._mailbox):
            self._finding.cancel()

    def left(self, epoch: int) -> None:
        """Note that an activation is over. An unanswered batch was not started."""
        if epoch == self._epoch and self._client is not None:
            client, self._client = self._client, None
            # An announced batch was executed. Its answers wait for room here, and will arrive.
            if self._in_flight and not client.is_announced(self._number):
                client.withdraw(self._number)
                self._settle(epoch, Moved(self._number))
            self._leave(epoch)

    def refuse_waiting(self, make: Callable[[], Exception] = shutting_down) -> None:
        """Refuse waiting requests, each with a new error. Those in flight are completed."""
        self._outcomes.refuse_waiting(make)

    def refuse_all(self) -> None:
        """Refuse waiting requests and those in flight."""
        self.refuse_waiting()
        for request in self._in_flight:
            request.fail(outcome_unknown("the server is shutting down"))

    def check_route(self, sent_before_s: float) -> None:
        """Ask whether the detector has moved if a batch sent before that time is unanswered.

        Necessary because a stopped or cut-off worker does not end its connections.
        """
        if self._in_flight and self._sent_at_s <= sent_before_s and self._checking is None:
            name = f"route check of {self.detector_id}"
            self._checking = self._loop.create_task(self._check_route(), name=name)
            self._checking.add_done_callback(self._checked)

    # -- sending ---------------------------------------------------------------------------------------------

    def _send_next(self) -> None:
        """Schedule sending the next batch, or find the detector first."""
        if self._in_flight or not len(self._mailbox):
            return
        if self._client is not None and self._client.link.usable:
            if not self._sending:
                self._sending = True
                self._loop.call_soon(self._send)
        elif self._finding is None:
            self._client = None
            self._finding = self._loop.create_task(self._find(), name=f"route to {self.detector_id}")

    def _send(self) -> None:
        self._sending = False
        client = self._client
        if self._in_flight:
            return
        if client is None or not client.link.usable:
            self._send_next()
            return
        self._sent_at_s = self._loop.time()
        first_s = self._mailbox.first_deadline_s()
        if first_s is not None and first_s <= self._sent_at_s:
            self._outcomes.expire_waiting(self._sent_at_s, None)
        batch = self._in_flight = self._mailbox.take()
        if not batch:
            return
        for request in batch:
            request.sent += 1
            request.sent_at_s = self._sent_at_s
        self._in_flight_bytes = COPIES * sum([len(request.operation.payload) for request in batch])
        self._memory.requests += self._in_flight_bytes
        epoch = self._epoch
        self._number = client.send(
            lambda response: self._settle(epoch, response),
            epoch,
            [Operation(*one.operation[:3], one.caller.id, *one.operation[4:]) for one in batch],
        )

    async def _find(self) -> None:
        """Find the detector and connect to its worker, or refuse the waiting requests."""
        try:
            while self._client is None:
                route = await self._locate(self.detector_id, self._left_epoch, self._large)
                try:
                    client = await self._reach(route, self)
                except OSError:
                    # The worker died, or will soon be declared dead.
                    self._left_epoch = route.epoch
                    await asyncio.sleep(self._settings.ask_s)
                    continue
                if client.link.usable:
                    self._client, self._epoch = client, route.epoch
        except asyncio.CancelledError:
            # No caller waits any more.
            pass
        except (Refusal, DetectorUnavailable) as error:
            known = error
            self._outcomes.refuse_waiting(lambda: known)
        except Exception as error:  # noqa: BLE001 -- it is logged, and waiting requests must be answered
            reference = self._outcomes.log("it cannot be found", error)
            retry_s = self._settings.retry_s
            self._outcomes.refuse_waiting(lambda: DetectorUnavailable(STARTING, reference, retry_s))
        finally:
            self._finding = None
            # More requests may have arrived since the last waiting one was dropped.
            self._send_next()

    async def _check_route(self) -> None:
        client, number, epoch = self._client, self._number, self._epoch

        def waits() -> bool:
            # A batch to another worker may have the same number.
            return bool(self._in_flight) and (self._epoch, self._number) == (epoch, number)

        while client is not None and waits():
            try:
                route = await self._locate(self.detector_id, epoch, self._large)
            except (Refusal, DetectorUnavailable):
                return
            if route.epoch != epoch:
                await asyncio.sleep(_NOTE_S)
                if waits():
                    # All other requests to that worker are lost too.
                    client.link.abort()
                return

    def _checked(self, checking: asyncio.Task[None]) -> None:
        self._checking = None
        if not checking.cancelled() and (error := checking.exception()) is not None:
            _log.error("detector %s: its route could not be checked", self.detector_id, exc_info=error)

    # -- outcomes --------------------------------------------------------------------------------------------

    def _settle(self, epoch: int, response: Response | None) -> None:
        """Settle the batch in flight, and send the next one."""
        batch, self._in_flight = self._in_flight, []
        self._memory.change_requests(-self._in_flight_bytes)
        self._in_flight_bytes = 0
        if isinstance(response, Answered) and len(response.answers) == len(batch):
            give_answers(batch, response)
        elif not self._outcomes.settle(batch, response):
            self._leave(epoch)
        self._send_next()

    def _leave(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._client = None
            self._left_epoch = epoch
        self._send_next()

    def _expire(self) -> None:
        """Fail the requests past their deadline, and schedule the next check."""
        self._timer = None
        now_s = self._loop.time()
        is_found = self._client is not None
        self._outcomes.expire_waiting(now_s, None if is_found else self._waiting_for_slots())
        waiting_s = self._mailbox.first_deadline_s()
        next_s = [] if waiting_s is None else [waiting_s]
        for request in self._in_flight:
            if request.answer_by_s <= now_s:
                request.fail(outcome_unknown("the deadline passed"))
            else:
                next_s.append(request.answer_by_s)
        if next_s:
            self._timer = self._loop.call_at(min(next_s), self._expire)
