"""A full queue is shared among tokens: none holds more than others while they are refused."""

import asyncio
import dataclasses
from pathlib import Path

from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.mailbox import Mailbox, Request
from engine.runtime.front_end.memory_budget import MemoryBudget

SETTINGS = RuntimeSettings(data=Path("unused"), waiting_max=4, waiting_bytes_max=100)


def request(payload: bytes = b"x", deadline_s: float = 1.0, token: str = "") -> Request:
    answer = asyncio.get_running_loop().create_future()
    made = Request(Operation("evaluate", payload), answer, deadline_s)
    made.caller.token_id = token
    return made


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
    assert not waiting._shares


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
