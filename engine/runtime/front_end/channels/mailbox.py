"""The requests that wait for one detector, bounded and taken in batches."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from engine.evaluation.wire.events import Answer
from engine.runtime.contract.errors import TOO_MANY_WAIT, DetectorUnavailable
from engine.runtime.contract.requests.calls import Took
from engine.runtime.contract.requests.operations import ANSWERS_MUCH, LONG, LONG_S, CurrentRequest, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.memory_budget import BYTES, MEMORY, QUEUE, SMALL_BYTES_MAX, MemoryBudget
from engine.runtime.transport.link import Answered

COPIES: Final = 2
"""How often a request counts in the memory budget: sending it copies it."""

_GONE_MAX = 64
_NOTHING = Operation("", b"")


@dataclass(eq=False, slots=True)
class Request:
    """An operation and the future of its answer. The deadline is in the loop's time."""

    operation: Operation
    answer: asyncio.Future[Answer]
    deadline_s: float
    """When it expires unless it has been sent."""
    waits: bool = False
    caller: CurrentRequest = field(default_factory=CurrentRequest)
    """The HTTP request, which receives the times."""
    sent: int = 0
    """How often it was sent to a worker."""
    sent_at_s: float | None = None
    """When it was sent last; None while it waits."""
    took: Took | None = None
    """How its time in the worker was spent, once it is answered."""

    @property
    def answer_by_s(self) -> float:
        """The deadline of its answer after it was sent."""
        return self.deadline_s + LONG_S * (self.operation.kind in LONG)

    def settle(self, answer: Answer) -> None:
        """Give the caller an answer, unless it already has one."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Give the caller an error, unless it already has an answer."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def tell_times(self, admitted_s: float, now_s: float) -> None:
        """Pass on to its caller how the time was spent."""
        queued_s = (now_s if self.sent_at_s is None else self.sent_at_s) - admitted_s
        if (took := self.took) is None:
            self.caller.add(queued_s, None, None)
        else:
            self.caller.add(queued_s + took.waited_s, took.evaluated_s, took.synced_s)


class Share:
    """The waiting requests of one token."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.requests = self.bytes = 0


class Mailbox:
    """Requests in order. All have the same timeout, so the first one has the earliest deadline.

    A request whose future is done is never taken, but counts until it is released.
    """

    def __init__(self, settings: RuntimeSettings, memory: MemoryBudget) -> None:
        self._settings = settings
        self._memory = memory
        self._queue: deque[Request] = deque()
        self._count = 0
        self._bytes = 0
        self._shares: dict[str, Share] = {}
        """The waiting requests by the ids of their tokens."""

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """The size of all waiting payloads."""
        return self._bytes

    def admit(self, request: Request) -> None:
        """Queue a request. Raises DetectorUnavailable 1401 if the mailbox or the memory budget is full.

        In a full mailbox, the newest request of the token that holds most is refused instead, if that holds
        more than the new request's token. So each token gets its share, however much others send.
        """
        size = len(request.operation.payload)
        while (cause := self._full(size)) is not None:
            self._memory.throttled[cause] += 1
            most_id = self._holding_more(request.caller.token_id, size, in_bytes=cause == BYTES)
            if most_id is None:
                raise self._too_many()
            waiting = (one for one in reversed(self._queue) if one.waits)
            evicted = next(one for one in waiting if one.caller.token_id == most_id)
            evicted.fail(self._too_many())
            self._leave(evicted)
            self._compact()
        if not self._memory.has_room(COPIES * size):
            self._find_room(request.operation, size)
        self._enter(request)
        self._queue.append(request)

    def release(self, request: Request) -> None:
        """Drop a request that nobody waits for. It may have been taken or released already."""
        if not request.waits:
            return
        self._leave(request)
        request.operation = _NOTHING
        self._compact()

    def _compact(self) -> None:
        """Remove requests that no longer wait, once they are most of the queue."""
        gone = len(self._queue) - self._count
        if gone > max(_GONE_MAX, self._count):
            self._queue = deque(one for one in self._queue if one.waits)

    def take(self) -> list[Request]:
        """Return the next batch, within the bounds, but at least one request if any waits."""
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
        """Put requests that were taken but not executed back at the front."""
        for request in reversed(requests):
            if not request.answer.done():
                request.sent_at_s = None
                self._enter(request)
                self._queue.appendleft(request)

    def first_deadline_s(self) -> float | None:
        """Return the earliest deadline; None if nothing waits."""
        return next((request.deadline_s for request in self._queue if request.waits), None)

    def expire(self, now_s: float, cause: str) -> Iterator[Request]:
        """Remove and yield the requests past their deadline; count those never sent by cause (EXPIRED)."""
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
        """Return why there is no room for a request of a size; None if there is room."""
        if self._count >= self._settings.waiting_max:
            return QUEUE
        # A request larger than the bound is admitted if it is alone; otherwise it could never be served.
        return BYTES if self._bytes + size > self._settings.waiting_bytes_max and self._count else None

    def _holding_more(self, token_id: str, bytes_: int, *, in_bytes: bool) -> str | None:
        """Return the token that holds most if it holds more than this one would with another request."""
        most_id, most = max(
            self._shares.items(), key=lambda entry: entry[1].bytes if in_bytes else entry[1].requests
        )
        own = self._shares.get(token_id, Share())
        is_more = most.bytes > own.bytes + bytes_ if in_bytes else most.requests > own.requests + 1
        return most_id if is_more and most_id != token_id else None

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
        share = self._shares.get(token_id := request.caller.token_id)
        if share is None:
            share = self._shares[token_id] = Share()
        share.requests += 1
        share.bytes += size
        self._memory.requests += COPIES * size

    def _leave(self, request: Request) -> None:
        if request.waits:
            size = len(request.operation.payload)
            request.waits = False
            self._count -= 1
            self._bytes -= size
            share = self._shares[token_id := request.caller.token_id]
            share.requests -= 1
            share.bytes -= size
            if not share.requests:
                del self._shares[token_id]
            self._memory.requests -= COPIES * size


def give_answers(batch: Iterable[Request], answered: Answered) -> None:
    """Give the first requests of a batch their answers."""
    for request, answer in zip(batch, answered.answers, strict=False):
        request.took = answered.took
        request.settle(answer)
