"""The requests that wait for a detector, and what becomes of each, compared with a plain list of them."""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import (
    DetectorUnavailable,
    encode_failure,
    no_such_detector,
    outcome_unknown,
    shutting_down,
)
from engine.runtime.contract.requests.calls import Crash, Took
from engine.runtime.contract.requests.operations import EVALUATE, STATE, CurrentRequest, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.mailbox import COPIES, Mailbox, Request
from engine.runtime.front_end.channels.outcomes import Outcomes
from engine.runtime.front_end.memory_budget import (
    BUSY,
    BYTES,
    MEMORY,
    QUEUE,
    SLOTS,
    STARTING_UP,
    MemoryBudget,
)
from engine.runtime.transport.link import Answered, Failed, Moved, Unknown
from snapshots.errors import SyncFailed, WriteFailed

pytestmark = pytest.mark.skipping_clock

SETTINGS = RuntimeSettings(
    data=Path("unused"), waiting_max=6, waiting_bytes_max=150, batch_operations_max=3, batch_bytes_max=50
)
MEMORY_BYTES = 1_024
DONE = Done(b"1")
DIED, LOST = "the detector's process died", "a message to the detector's process or from it was lost"
TOOK = Took(1.0, 2.0, 3.0)

WAITED = {
    None: ("was busy with earlier requests", BUSY),
    0: ("was starting", STARTING_UP),
    3: ("was starting: all slots for active detectors are taken, and 3 wait for one", SLOTS),
}
"""Where a request past its deadline was, by the number of detectors that wait for a slot."""


def error_code(error: DetectorUnavailable) -> tuple[int, str]:
    return error.code, error.message


@dataclass(eq=False)
class Wanted:
    """A request, what the model knows of it, and what is to become of it."""

    request: Request
    size: int
    key: str
    deadline_s: float
    sent: int = 0
    outcome: object = None
    gone: bool = False
    """Whether its caller no longer waits."""

    def end(self, outcome: object) -> None:
        self.outcome = self.outcome or ("gone" if self.gone else outcome)

    @property
    def waits(self) -> bool:
        return self.outcome is None and not self.gone

    def told(self) -> object:
        """What its caller was told."""
        answer = self.request.answer
        if not answer.done():
            return None
        if answer.cancelled():
            return "gone"
        match answer.exception():
            case None:
                answer = answer.result()
                return "internal" if isinstance(answer, Refused) else answer
            case DetectorUnavailable() as error:
                return error_code(error)
            case Refusal() as error:
                return error.entries
            case error:
                return error


class World:
    """A mailbox with its outcomes, and beside it the list of what waits, in order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.memory = MemoryBudget(MEMORY_BYTES)
        self.mailbox = Mailbox(SETTINGS, self.memory)
        self.outcomes = Outcomes("d1", SETTINGS, self.mailbox)
        self.queue: list[Wanted] = []
        self.all: list[Wanted] = []
        self.now_s = 0.0
        self.throttled, self.expired, self.happened = Counter[str](), Counter[str](), Counter[str]()

    def step(self) -> None:
        steps = [*[self.admit] * 5, self.leave, self.send, self.send, self.expire, self.squeeze, self.refuse]
        step = self.chance.choices(steps, [1] * 9 + [0.5, 0.6])[0]
        step()
        self.happened[step.__name__] += 1
        waiting = sum(one.size for one in self.queue)
        assert (len(self.mailbox), self.mailbox.bytes) == (len(self.queue), waiting)
        assert self.memory.requests == COPIES * waiting
        assert self.mailbox.first_deadline_s() == next((one.deadline_s for one in self.queue), None)
        assert [one.told() for one in self.all] == [one.outcome for one in self.all]
        assert [one.request.sent for one in self.all] == [one.sent for one in self.all]
        assert (self.memory.take_throttled(), self.memory.take_expired()) == (self.throttled, self.expired)
        self.throttled, self.expired = Counter(), Counter()

    def admit(self) -> None:
        size = self.chance.choice((1, 1, 10, 25, 40, 60, 149, 151, 500))
        key = self.chance.choice(("", "key"))
        kind = self.chance.choice((EVALUATE, STATE))
        operation = Operation(kind, b"x" * size, key)
        request = Request(operation, asyncio.get_running_loop().create_future(), self.now_s + 1)
        cause = self.cause(kind, size)
        if cause is None:
            self.mailbox.admit(request)
            self.queue.append(Wanted(request, size, key, self.now_s + 1))
            self.all.append(self.queue[-1])
        else:
            self.throttled[cause] += 1
            with pytest.raises(DetectorUnavailable) as caught:
                self.mailbox.admit(request)
            assert (caught.value.code, caught.value.retry_after_s) == (1401, 1.0)
            assert cause == MEMORY or f"{len(self.queue)} requests wait" in caught.value.message
        self.happened[f"admitted: {cause}"] += 1

    def cause(self, kind: str, size: int) -> str | None:
        """Why a request is not admitted; None if it is."""
        if len(self.queue) >= SETTINGS.waiting_max:
            return QUEUE
        if self.queue and sum(one.size for one in self.queue) + size > SETTINGS.waiting_bytes_max:
            return BYTES
        free = MEMORY_BYTES - self.memory.answers - COPIES * sum(one.size for one in self.queue)
        # A question with a large answer gets nothing of what is kept for small requests.
        return MEMORY if COPIES * size > free - (0 if kind == EVALUATE else MEMORY_BYTES // 4) else None

    def squeeze(self) -> None:
        self.memory.answers = self.chance.choice((0, 0, 500, MEMORY_BYTES - 30))

    def leave(self) -> None:
        """A caller goes away; the channel releases its request then or later, perhaps twice."""
        if not self.all:
            return
        one = self.chance.choice(self.all)
        if one.outcome is None:
            one.request.answer.cancel()
            one.gone, one.outcome = True, "gone"
            if self.chance.random() < 0.5:
                return
        self.mailbox.release(one.request)
        self.mailbox.release(one.request)
        if one in self.queue:
            self.queue.remove(one)

    def taken(self) -> list[Wanted]:
        """The next batch, of the list."""
        batch: list[Wanted] = []
        bytes_ = 0
        while self.queue and len(batch) < SETTINGS.batch_operations_max:
            one = self.queue[0]
            if not one.gone:
                bytes_ += one.size
                if batch and bytes_ > SETTINGS.batch_bytes_max:
                    break
                batch.append(one)
            self.queue.pop(0)
        return batch

    def send(self) -> None:
        """Send a batch, to which anything may come back."""
        batch = self.taken()
        assert self.mailbox.take() == [one.request for one in batch]
        for one in batch:
            one.sent += 1
            one.request.sent += 1
            one.request.sent_at_s = self.now_s
        if not batch:
            return
        if self.chance.random() < 0.2:
            one = self.chance.choice(batch)
            one.request.answer.cancel()
            one.gone, one.outcome = True, "gone"
        kind = self.chance.choice((self.answered, self.answered, self.failed, self.lost, self.moved))
        self.happened[f"sent: {kind.__name__}"] += 1
        kind(batch)

    def put_back(self, batch: Sequence[Wanted], *, begun: bool) -> None:
        for one in batch:
            one.sent -= not begun
        self.queue[:0] = [one for one in batch if one.waits]

    def answered(self, batch: list[Wanted]) -> None:
        crash = self.chance.choice((None, Crash("ab12", "Traceback")))
        done = self.chance.randrange(crash is None, len(batch) + (crash is None))
        reply = Answered(1, [DONE] * done, crash, TOOK)
        for one in batch[:done]:
            one.end(DONE)
        if crash is not None:
            batch[done].end("internal")
        later = batch[done + (crash is not None) :]
        if crash is None:
            self.put_back(later, begun=False)
        else:
            self.queue[:0] = [one for one in later if one.waits]
        assert self.outcomes.settle([one.request for one in batch], reply)
        assert [one.request.took for one in batch[:done]] == [TOOK] * done

    def failed(self, batch: list[Wanted]) -> None:
        unknown = outcome_unknown("not synced")
        response, outcome = self.chance.choice(
            (
                (Failed(1, encode_failure(WriteFailed("no room"))), (1501, "nothing was evaluated: no room")),
                (Failed(1, encode_failure(SyncFailed("not synced"))), error_code(unknown)),
                (Failed(1, encode_failure(KeyError("x"))), "internal"),
                (
                    Failed(1, encode_failure(DetectorUnavailable(1501, "it is starting", 2.0))),
                    (1501, "it is starting"),
                ),
                (
                    Failed(1, encode_failure(Refusal(Entry(1200, "no detector")))),
                    (Entry(1200, "no detector"),),
                ),
            )
        )
        for one in batch:
            one.end(outcome)
        assert self.outcomes.settle([one.request for one in batch], response)

    def moved(self, batch: list[Wanted]) -> None:
        self.put_back(batch, begun=False)
        assert not self.outcomes.settle([one.request for one in batch], Moved(1))

    def lost(self, batch: list[Wanted]) -> None:
        """The worker died, or a message was lost. What has a key is sent once more."""
        response = self.chance.choice((None, Unknown(1)))
        again = [one for one in batch if one.key and one.sent < 2]
        for one in batch:
            if one not in again:
                one.end(error_code(outcome_unknown(LOST if response else DIED)))
        self.put_back(again, begun=True)
        stays = self.outcomes.settle([one.request for one in batch], response)
        assert stays is (response is not None)

    def expire(self) -> None:
        slots = self.chance.choice(list(WAITED))
        state, cause = WAITED[slots]
        self.now_s += self.chance.choice((0.1, 0.5, 1.0))
        late = f"the deadline passed while the detector {state}; nothing was evaluated"
        while self.queue and (self.queue[0].deadline_s <= self.now_s):
            one = self.queue.pop(0)
            self.expired[cause] += not one.sent
            one.end(error_code(outcome_unknown(DIED)) if one.sent else (1501, late))
        self.outcomes.expire_waiting(self.now_s, slots)

    def refuse(self) -> None:
        make = self.chance.choice((shutting_down, lambda: no_such_detector("d1")))
        error = make()
        for one in self.queue:
            if isinstance(error, Refusal):
                one.end(error.entries)
            else:
                one.end(error_code(outcome_unknown(DIED) if one.sent else error))
        if self.chance.random() < 0.5:
            self.outcomes.refuse_waiting(make)
        else:
            taken = self.mailbox.take_waiting()
            assert taken == [one.request for one in self.queue]
            for request in taken:
                request.fail(outcome_unknown(DIED) if request.sent and make is shutting_down else make())
        self.queue = []


async def test_a_mailbox_and_its_outcomes_are_those_of_a_plain_list(examples: Any) -> None:
    happened = Counter[str]()
    wanted = {f"admitted: {cause}" for cause in (None, QUEUE, BYTES, MEMORY)}
    wanted |= {f"sent: {kind}" for kind in ("answered", "failed", "lost", "moved")} | {"refuse", "expire"}
    for chance in examples(1_000, until=lambda: wanted <= happened.keys()):
        world = World(chance)
        for _ in range(80):
            world.step()
        happened += world.happened


@pytest.mark.slow
async def test_released_requests_do_not_pile_up() -> None:
    def requests() -> int:
        gc.collect()
        return sum(isinstance(one, Request) for one in gc.get_objects())

    mailbox, before = Mailbox(SETTINGS, MemoryBudget(MEMORY_BYTES)), requests()
    first = sent(mailbox, "", take=False)[0]
    for _ in range(1_000):
        mailbox.release(sent(mailbox, "", take=False)[-1])
    assert requests() - before < 200
    assert mailbox.take() == [first]


def sent(mailbox: Mailbox, *ids: str, take: bool = True) -> list[Request]:
    """Return requests with these ids; with `take`, as a batch that was sent."""
    requests = [
        Request(Operation(EVALUATE, b"{}"), asyncio.get_running_loop().create_future(), 10.0) for _ in ids
    ]
    for request, id_ in zip(requests, ids, strict=True):
        request.caller = CurrentRequest(id_)
        mailbox.admit(request)
    return mailbox.take() if take else requests


SHOWN = "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 and 2 more"


@pytest.mark.parametrize(
    ("ids", "response", "message", "requests"),
    [
        (["r0"], Answered(1, [], Crash("ab12", "Traceback")), ": an internal error; its reference", "r0"),
        ([*[f"r{n}" for n in range(12)], ""], None, ": its process died during requests", SHOWN),
        (["r0", ""], Unknown(1), ": a message was lost during requests", "r0"),
        (["r0"], Failed(1, encode_failure(KeyError("x"))), ", the worker failed: an internal error", "r0"),
    ],
)
async def test_the_log_says_what_happened_to_which_requests(
    ids: Iterable[str], response: Any, message: str, requests: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = RuntimeSettings(data=Path("unused"))
    mailbox = Mailbox(settings, MemoryBudget(settings.memory_bytes_max))
    batch = sent(mailbox, *ids)
    Outcomes("d1", settings, mailbox).settle(batch, response)
    [record] = caplog.records
    assert record.getMessage().startswith(f"detector d1{message}")
    fields: dict[str, str] = record.fields
    assert (fields["detector"], fields["operation"]) == ("d1", EVALUATE)
    assert fields.get("requests", fields.get("request")) == requests
    if isinstance(response, Answered):
        assert record.detail == "Traceback"
    errors = [one.answer.exception() for one in batch]
    if not isinstance(response, Failed | Answered):
        assert None not in errors
        return
    # The caller gets the reference by which the log is searched.
    refused = batch[0].answer.result()
    assert isinstance(refused, Refused)
    [entry] = refused.entries
    assert (entry.code, record.getMessage().endswith(entry.message)) == (1500, True)
    assert (record.exc_info is not None) is isinstance(response, Failed)
