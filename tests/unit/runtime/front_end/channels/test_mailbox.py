"""The queue of a detector: bounds, batches, and requests that nobody waits for any more."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.mailbox import Mailbox, Request
from engine.runtime.front_end.memory_budget import ANSWERS, BYTES, MEMORY, QUEUE, MemoryBudget

pytestmark = pytest.mark.skipping_clock

SETTINGS = RuntimeSettings(
    data=Path("unused"), waiting_max=4, waiting_bytes_max=100, batch_operations_max=3, batch_bytes_max=50
)


@pytest.fixture
async def waiting():
    return Mailbox(SETTINGS, MemoryBudget(SETTINGS.memory_bytes_max))


async def test_refusals_are_counted_by_their_cause():
    memory = MemoryBudget(1024)
    waiting = Mailbox(SETTINGS, memory)
    admitted(waiting, b"x" * 60)
    memory.answers = 1024
    for size, cause in ((41, BYTES), (30, MEMORY)):
        with pytest.raises(DetectorUnavailable):
            waiting.admit(request(b"x" * size))
        assert memory.take_throttled() == {cause: 1}
    memory.answers = 0
    admitted(waiting, b"1", b"2", b"3")
    for _ in range(2):
        with pytest.raises(DetectorUnavailable):
            waiting.admit(request(b"x" * 41))
    assert memory.take_throttled() == {QUEUE: 2}
    assert not memory.render().grow(2048)
    assert memory.take_throttled() == {ANSWERS: 1}
    assert memory.take_throttled() == {}


def request(payload: bytes = b"x", deadline_s: float = 1.0, token: str = "") -> Request:
    answer = asyncio.get_running_loop().create_future()
    made = Request(Operation("evaluate", payload), answer, deadline_s)
    made.caller.token_id = token
    return made


def admitted(waiting: Mailbox, *payloads: bytes) -> list[Request]:
    requests = [request(payload) for payload in payloads]
    for one in requests:
        waiting.admit(one)
    return requests


async def test_a_batch_ends_before_it_has_too_many_bytes(waiting):
    requests = admitted(waiting, b"x" * 25, b"x" * 25, b"x")
    assert waiting.take() == requests[:2]


async def test_one_operation_may_be_larger_than_a_batch(waiting):
    requests = admitted(waiting, b"x" * 60, b"x")
    assert waiting.take() == requests[:1]
    assert waiting.take() == requests[1:]


async def test_too_many_are_refused_and_told_when_to_come_again(waiting):
    admitted(waiting, b"1", b"2", b"3", b"4")
    with pytest.raises(DetectorUnavailable, match="4 requests wait") as caught:
        waiting.admit(request())
    assert caught.value.code == 1401
    assert caught.value.retry_after_s


async def test_too_many_bytes_are_refused(waiting):
    admitted(waiting, b"x" * 60)
    with pytest.raises(DetectorUnavailable):
        waiting.admit(request(b"x" * 41))
    waiting.admit(request(b"x" * 40))


async def test_one_that_is_larger_than_all_room_is_admitted_alone(waiting):
    admitted(waiting, b"x" * 1000)
    with pytest.raises(DetectorUnavailable):
        waiting.admit(request())


async def test_a_released_request_counts_no_more_and_is_never_taken(waiting):
    one, two, three = admitted(waiting, b"x" * 40, b"y" * 40, b"z")
    two.answer.cancel()
    for _ in range(2):
        waiting.release(two)
        assert (len(waiting), waiting.bytes) == (2, 41)
    assert waiting.take() == [one, three]
    waiting.release(one)
    assert (len(waiting), waiting.bytes) == (0, 0)


async def test_a_request_whose_caller_has_just_gone_is_not_taken(waiting):
    one, two = admitted(waiting, b"1", b"2")
    one.answer.cancel()
    assert waiting.take() == [two]
    assert (len(waiting), waiting.bytes) == (0, 0)


async def test_released_requests_do_not_pile_up(waiting):
    first = admitted(waiting, b"stays")[0]
    for _ in range(1000):
        waiting.release(admitted(waiting, b"goes")[0])
    assert len(waiting._queue) < 100
    assert waiting.take() == [first]


async def test_what_is_put_back_comes_first_and_without_those_who_have_gone(waiting):
    requests = admitted(waiting, b"1", b"2", b"3", b"4")
    batch = waiting.take()
    batch[1].answer.cancel()
    waiting.put_back(batch[1:])
    assert (len(waiting), waiting.bytes) == (2, 2)
    assert waiting.take() == [requests[2], requests[3]]


async def test_taking_gives_all_that_still_waits(waiting):
    one, two, three = admitted(waiting, b"1", b"2", b"3")
    waiting.release(two)
    assert waiting.take_waiting() == [one, three]
    assert (len(waiting), waiting.bytes, waiting.take()) == (0, 0, [])


def offered(waiting: Mailbox, token: str, payload: bytes = b"x") -> Request | None:
    """The request of a token if it is admitted."""
    made = request(payload, token=token)
    try:
        waiting.admit(made)
    except DetectorUnavailable:
        return None
    return made


def kept(requests: list[Request | None]) -> int:
    """How many of some requests still wait; the others were refused, and were told so."""
    for one in requests:
        if one is not None and not one.waits:
            assert isinstance(one.answer.exception(), DetectorUnavailable)
    return sum(one is not None and one.waits for one in requests)


async def test_a_token_that_floods_a_full_queue_leaves_others_their_share():
    settings = dataclasses.replace(SETTINGS, waiting_max=30, waiting_bytes_max=10_000)
    waiting = Mailbox(settings, MemoryBudget(1 << 30))
    flood = [offered(waiting, "flood") for _ in range(50)]
    assert kept(flood) == 30
    little = [offered(waiting, "little") for _ in range(3)]
    assert (kept(little), kept(flood)) == (3, 27)
    flood += [offered(waiting, "flood") for _ in range(50)]
    much = [offered(waiting, "much") for _ in range(50)]
    assert [kept(each) for each in (flood, little, much)] == [14, 3, 13]
    assert len(waiting) == 30
    # The oldest stay, so that a share is served in order.
    assert kept(flood[:14]) == 14
    taken: list[Request] = []
    while batch := waiting.take():
        taken += batch
    assert taken == [one for one in (*flood[:14], *little, *much[:13]) if one is not None]
    assert (len(waiting), waiting.bytes) == (0, 0)
    assert waiting._shares == {}


async def test_a_token_with_large_requests_leaves_others_their_share_of_bytes():
    settings = dataclasses.replace(SETTINGS, waiting_max=1_000, waiting_bytes_max=1_000)
    waiting = Mailbox(settings, MemoryBudget(1 << 30))
    large = [offered(waiting, "large", b"x" * 100) for _ in range(15)]
    assert kept(large) == 10
    small = [offered(waiting, "small", b"x" * 10) for _ in range(60)]
    assert (kept(small), kept(large)) == (50, 5)
    assert waiting.bytes == 1_000


async def test_a_queue_that_evicts_for_long_does_not_grow():
    waiting = Mailbox(SETTINGS, MemoryBudget(1 << 30))
    for number in range(5_000):
        offered(waiting, f"token {number % 7}")
    assert len(waiting) == SETTINGS.waiting_max
    assert len(waiting._queue) <= 70
