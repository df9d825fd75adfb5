"""The requests that wait for one detector, bounded and taken in batches, and what becomes of them."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.evaluation.wire.events import Answer, Refused
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import (
    INTERNAL,
    STARTING,
    TOO_MANY_WAIT,
    DetectorUnavailable,
    outcome_unknown,
)
from engine.runtime.contract.requests.calls import Took
from engine.runtime.contract.requests.current_request import CurrentRequest
from engine.runtime.contract.requests.operations import ANSWERS_MUCH, LONG, LONG_S, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.memory_budget import (
    BUSY,
    BYTES,
    MEMORY,
    QUEUE,
    SLOTS,
    SMALL_BYTES_MAX,
    STARTING_UP,
    MemoryBudget,
)
from engine.runtime.front_end.permits import Shares
from engine.runtime.transport.link import Answered, Failed, Moved, Response, Unknown
from engine.runtime.transport.link_client import error_in
from snapshots.errors import StorageError, WriteFailed

COPIES: Final = 2
"""A request counts this often in the memory of the front end, because sending it copies it."""

_GONE_MAX = 64
_NOTHING = Operation("", b"")

_log = logging.getLogger(__name__)

_SENT_MAX: Final = 2
"""How often an evaluation with an idempotency key is sent if the worker's process dies."""

_IDS_LOGGED: Final = 10
"""How many ids of requests in flight a log line shows."""

_DIED: Final = "the detector's process died"

_LOST: Final = "a message to the detector's process or from it was lost"


@dataclass(eq=False, slots=True)
class Request:
    """An operation and the future of its answer. The deadline is in the loop's time."""

    operation: Operation
    answer: asyncio.Future[Answer]
    deadline_s: float
    """Until when it may wait to be sent."""
    waits: bool = False
    caller: CurrentRequest = field(default_factory=CurrentRequest)
    """The HTTP request, which is told where its time went."""
    sent: int = 0
    """How often it was sent to a worker."""
    sent_at_s: float | None = None
    """When it was sent last; None while it waits."""
    took: Took | None = None
    """Where its time went in the worker, once it is answered."""
    mailbox: "Mailbox | None" = None
    """The mailbox that admitted it."""

    @property
    def answer_by_s(self) -> float:
        """The deadline of its answer, once it was sent."""
        return self.deadline_s + LONG_S * (self.operation.kind in LONG)

    def settle(self, answer: Answer) -> None:
        """Give the caller its answer, unless it has one."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Give the caller an error, unless it has an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def release(self) -> None:
        """Drop the request: it is answered, or its caller is gone."""
        if self.mailbox is not None:
            self.mailbox.release(self)

    def tell_times(self, admitted_s: float, now_s: float) -> None:
        """Tell its caller where the time went."""
        queued_s = (now_s if self.sent_at_s is None else self.sent_at_s) - admitted_s
        if (took := self.took) is None:
            self.caller.add(queued_s, None, None)
        else:
            self.caller.add(queued_s + took.waited_s, took.evaluated_s, took.synced_s)


class Mailbox:
    """Requests in order. All have the same timeout, so the first one has the earliest deadline.

    A request whose future is done is never taken. It stops counting once it is released.
    """

    def __init__(self, settings: RuntimeSettings, memory: MemoryBudget) -> None:
        self._settings = settings
        self._memory = memory
        self._queue: deque[Request] = deque()
        self._count = 0
        self._bytes = 0
        self._shares = Shares()

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """The size of all waiting payloads."""
        return self._bytes

    def admit(self, request: Request) -> None:
        """Queue a request. Raises DetectorUnavailable 1401 if the mailbox or the memory budget is full.

        In a full mailbox, a token that holds less than another takes that one's place: its newest request is
        refused instead. So each token has its share, however much others send.
        """
        size = len(request.operation.payload)
        while (cause := self._full(size)) is not None:
            self._memory.throttled[cause] += 1
            most_id = self._shares.holding_more(request.caller.token_id, size, in_bytes=cause == BYTES)
            if most_id is None:
                raise self._too_many()
            waiting = (one for one in reversed(self._queue) if one.waits)
            evicted = next(one for one in waiting if one.caller.token_id == most_id)
            evicted.fail(self._too_many())
            self._leave(evicted)
            self._compact()
        if not self._memory.has_room(COPIES * size):
            self._find_room(request.operation, size)
        request.mailbox = self
        self._enter(request)
        self._queue.append(request)

    def release(self, request: Request) -> None:
        """Drop a request that nobody waits for. It may have been taken, or released before."""
        if not request.waits:
            return
        self._leave(request)
        request.operation = _NOTHING
        self._compact()

    def _compact(self) -> None:
        """Drop what no longer waits, once that is most of the queue."""
        gone = len(self._queue) - self._count
        if gone > max(_GONE_MAX, self._count):
            self._queue = deque(one for one in self._queue if one.waits)

    def take(self) -> list[Request]:
        """Return the next batch, within its bounds: at least one request if any waits."""
        batch: list[Request] = []
        bytes_left = self._settings.batch_bytes_max
        while self._queue and len(batch) < self._settings.batch_operations_max:
            request = self._queue[0]
            if request.waits and not request.answer.done():
                bytes_left -= len(request.operation.payload)
                if bytes_left < 0 and batch:
                    break
                batch.append(request)
            self._queue.popleft()
            self._leave(request)
        return batch

    def put_back(self, requests: list[Request]) -> None:
        """Queue again, ahead of all others, requests that were taken but not executed."""
        for request in reversed(requests):
            if not request.answer.done():
                request.sent_at_s = None
                self._enter(request)
                self._queue.appendleft(request)

    def first_deadline_s(self) -> float | None:
        """Return the earliest deadline, or None if nothing waits."""
        return next((request.deadline_s for request in self._queue if request.waits), None)

    def expire(self, now_s: float, cause: str) -> Iterator[Request]:
        """Remove and yield the requests whose deadline has passed. Those never sent count: one of EXPIRED."""
        while self._queue and (not self._queue[0].waits or self._queue[0].deadline_s <= now_s):
            request = self._queue.popleft()
            if request.waits:
                self._leave(request)
                self._memory.expired[cause] += not request.sent
                yield request

    def take_waiting(self) -> list[Request]:
        """Remove and return all waiting requests."""
        taken = [request for request in self._queue if request.waits]
        for request in taken:
            self._leave(request)
        self._queue.clear()
        return taken

    def _full(self, size: int) -> str | None:
        """Return why there is no room for a request of a size, None if there is."""
        if self._count >= self._settings.waiting_max:
            return QUEUE
        # A request larger than the bound is admitted alone; otherwise it could never be served.
        return BYTES if self._bytes + size > self._settings.waiting_bytes_max and self._count else None

    def _too_many(self) -> DetectorUnavailable:
        message = f"{self._count} requests wait for this detector already; this one was not executed"
        return DetectorUnavailable(TOO_MANY_WAIT, message, retry_after_s=1.0)

    def _find_room(self, operation: Operation, size: int) -> None:
        is_small = size <= SMALL_BYTES_MAX and operation.kind not in ANSWERS_MUCH
        if not self._memory.find_room(COPIES * size, is_small=is_small):
            self._memory.throttled[MEMORY] += 1
            message = "there is no memory for the request beside those of others; it was not executed"
            raise DetectorUnavailable(TOO_MANY_WAIT, message, retry_after_s=1.0)

    def _enter(self, request: Request) -> None:
        size = len(request.operation.payload)
        request.waits = True
        self._count += 1
        self._bytes += size
        self._shares.add(request.caller.token_id, size)
        self._memory.requests += COPIES * size

    def _leave(self, request: Request) -> None:
        if request.waits:
            size = len(request.operation.payload)
            request.waits = False
            self._count -= 1
            self._bytes -= size
            self._shares.take(request.caller.token_id, size)
            self._memory.requests -= COPIES * size


@dataclass(eq=False)
class Outcomes:
    """Settles requests. Those of a batch that were not executed go back to the mailbox."""

    _detector_id: str
    _settings: RuntimeSettings
    _mailbox: Mailbox

    def settle(self, batch: list[Request], response: Response | None) -> bool:
        """Settle or queue again each request of a batch; None as the response says that the worker was lost.

        Returns whether the worker still has the detector.
        """
        stays, unknown = True, _DIED
        match response:
            case Answered():
                for request, answer in zip(batch, response.answers, strict=False):
                    request.took = response.took
                    request.settle(answer)
                if len(response.answers) < len(batch):
                    self._settle_rest(batch, response)
                return True
            case None | Unknown():
                stays = response is not None
                unknown = _LOST if stays else _DIED
                message = (
                    f"detector %s: {'a message was lost' if stays else 'its process died'} during requests"
                )
                _log.warning(message, self._detector_id, extra={"fields": self._fields(batch)})
                # A request with a key is safe to send again: if it was executed, its first answer is
                # returned.
                self._mailbox.put_back([one for one in batch if one.operation.key and one.sent < _SENT_MAX])
            case Moved():
                stays = False
                for request in batch:
                    request.sent -= 1
                self._mailbox.put_back(batch)
            case Failed():
                unknown = self._fail(batch, error_in(response))
            case error:
                for request in batch:
                    request.fail(error_in(error))
        for request in batch:
            if not request.waits:
                request.fail(outcome_unknown(unknown))
        return stays

    def _settle_rest(self, batch: list[Request], answered: Answered) -> None:
        """Settle or queue again the requests for which a reply has no answer."""
        crash = answered.crash
        done = len(answered.answers)
        if crash is None:
            assert done, "there is at least one answer"
            # The reply was full; the remaining operations were not begun.
            for request in batch[done:]:
                request.sent -= 1
            self._mailbox.put_back(batch[done:])
            return
        message = f"an internal error; its reference in the log is {crash.reference}"
        failed = batch[done]
        operation = failed.operation.kind
        fields = {**failed.caller.fields, "detector": self._detector_id, "operation": operation}
        extra = {"fields": fields, "detail": crash.detail}
        _log.error("detector %s: %s", self._detector_id, message, extra=extra)
        failed.settle(Refused((Entry(INTERNAL, message),)))
        self._mailbox.put_back(batch[done + 1 :])

    def _fail(self, batch: list[Request], error: Exception) -> str:
        """Settle a batch whose execution failed; return the reason why other outcomes are unknown."""
        if isinstance(error, WriteFailed):
            message = f"nothing was evaluated: {error}"
            for request in batch:
                request.fail(DetectorUnavailable(STARTING, message, self._settings.retry_s))
        elif not isinstance(error, StorageError):
            refused = Refused((Entry(INTERNAL, self.log("the worker failed", error, batch)),))
            for request in batch:
                request.settle(refused)
        return str(error)

    def refuse_waiting(self, make: Callable[[], Exception]) -> None:
        """Refuse the waiting requests, each with an error of its own."""
        for request in self._mailbox.take_waiting():
            # If the detector does not exist, the outcome of an earlier attempt does not matter.
            error = make()
            request.fail(_unknown_outcome() if request.sent and not isinstance(error, Refusal) else error)

    def expire_waiting(self, now_s: float, waiting_for_slots: int | None) -> None:
        """Refuse the requests that were not sent by their deadline; they are never sent.

        `waiting_for_slots` says how many detectors wait for an activation slot because all are taken; None if
        this one is active: its worker is known.
        """
        cause, state = STARTING_UP, "was starting"
        if waiting_for_slots is None:
            cause, state = BUSY, "was busy with earlier requests"
        elif waiting_for_slots:
            cause = SLOTS
            state += f": all slots for active detectors are taken, and {waiting_for_slots} wait for one"
        message = f"the deadline passed while the detector {state}; nothing was evaluated"
        for request in self._mailbox.expire(now_s, cause):
            refusal = DetectorUnavailable(STARTING, message, self._settings.retry_s)
            request.fail(_unknown_outcome() if request.sent else refusal)

    def log(self, what: str, error: Exception, batch: Sequence[Request] = ()) -> str:
        """Log an exception, and return the message that refers callers to it."""
        message = f"an internal error; its reference in the log is {secrets.token_hex(6)}"
        extra = {"fields": self._fields(batch)}
        _log.error("detector %s, %s: %s", self._detector_id, what, message, exc_info=error, extra=extra)
        return message

    def _fields(self, batch: Sequence[Request]) -> dict[str, str]:
        """Return the log fields: the detector, and the kinds and a few of the ids of requests in flight.

        The ids of their traces are there if they have any.
        """
        kinds = " ".join(sorted({request.operation.kind for request in batch}))
        fields = {"detector": self._detector_id, "operation": kinds}
        fields["requests"] = _shown([request.caller.id for request in batch])
        if traces := _shown(list(dict.fromkeys(request.caller.trace_id for request in batch))):
            fields["traces"] = traces
        return fields


def _shown(ids: Sequence[str]) -> str:
    """Return the first of the ids that are not empty, and the number of the others."""
    ids = [one for one in ids if one]
    more = f" and {len(ids) - _IDS_LOGGED} more" if len(ids) > _IDS_LOGGED else ""
    return " ".join(ids[:_IDS_LOGGED]) + more


def _unknown_outcome() -> DetectorUnavailable:
    """Return the error of a request that waits to be sent again: the first attempt may have succeeded."""
    return outcome_unknown(_DIED)
