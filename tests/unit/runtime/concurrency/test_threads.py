"""Threads for blocking calls: in order, one result each, and an end."""

import asyncio
import threading

import pytest

from engine.runtime.concurrency.threads import Threads
from tests.local_runtime.service import until


def alive(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


async def test_threads_execute_every_call_before_their_end():
    threads = Threads("of the test", 2)
    assert alive("of the test") == 2
    go_on = threading.Event()
    calls = [threads.call(lambda number=number: go_on.wait(5) and number) for number in range(5)]
    threads.end()
    go_on.set()
    assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]
    await until(lambda: not alive("of the test"))


async def test_a_caller_that_gives_up_changes_nothing_for_the_next_one():
    threads, go_on = Threads("of the test"), threading.Event()
    given_up, next_one = threads.call(lambda: go_on.wait(60)), threads.call(lambda: "next")
    await asyncio.sleep(0)
    given_up.cancel()
    go_on.set()
    assert await next_one == "next"
    threads.end()


async def test_what_a_call_raises_is_raised_and_the_thread_goes_on():
    threads = Threads("of the test")
    with pytest.raises(ZeroDivisionError):
        await threads.call(lambda: 1 / 0)
    assert await threads.call(lambda: "next") == "next"
    threads.end()
