"""Threads for blocking calls, threads with an event loop, and turns among computing threads.

All are daemons, so that a hung call delays no exit. Cancelling the future of a call does not stop the call.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future  # noqa: TC003 -- the annotation of a function that others inspect
from functools import partial
from typing import Any, Final, Self, TypeVar

import uvloop

from engine.runtime.concurrency.background import cancel

T = TypeVar("T")

_Call = tuple[Callable[[], Any], asyncio.Future[Any]]


def off_loop(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Execute a call in a thread of its own, and return its future."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    threading.Thread(target=_execute, args=(call, outcome), name=name, daemon=True).start()
    return outcome


class Threads:
    """A fixed number of threads that execute calls in order."""

    def __init__(self, name: str, number: int = 1) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._number = number
        for _ in range(number):
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, call: Callable[[], T]) -> asyncio.Future[T]:
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, outcome))
        return outcome

    def end(self) -> None:
        """End the threads after the calls queued so far."""
        for _ in range(self._number):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            _execute(*call)


def _execute(call: Callable[[], T], outcome: asyncio.Future[T]) -> None:
    try:
        settle: Callable[[], None] = partial(outcome.set_result, call())
    except BaseException as error:  # noqa: BLE001 -- the awaiting task raises it
        settle = partial(outcome.set_exception, error)
    # A closed loop has no waiting task.
    with contextlib.suppress(RuntimeError):
        outcome.get_loop().call_soon_threadsafe(_unless_done, outcome, settle)


def _unless_done(outcome: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not outcome.done():
        settle()


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self, name: str) -> None:
        self.loop = uvloop.new_event_loop()
        self._ended = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin a task; callable from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a task and return its result. Cancelling the caller cancels the task."""
        return await asyncio.wrap_future(self.begin(work))

    def end(self) -> None:
        """Cancel all tasks, and end the thread. Callable more than once."""
        if not self._ended:
            self._ended = True
            self.begin(self._stop())

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    async def _stop(self) -> None:
        await cancel(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
        self.loop.stop()


async def turn_of(loop: asyncio.AbstractEventLoop) -> None:
    """Return once the loop of another thread has made one iteration."""
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_nothing(), loop))


async def _nothing() -> None:
    pass


_TURN_S: Final = 0.01


class Turns:
    """Gives turns in the order in which threads ask for them.

    Only one thread runs Python code at a time. If several compute, any other thread waits some milliseconds
    for each of them before it continues. With turns, it waits for only one.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._guard = threading.Lock()
        self._taken = False
        self._since_s = 0.0
        self._waiting: deque[threading.Lock] = deque()
        """A lock for each waiting thread, released when its turn comes."""

    def __enter__(self) -> Self:
        """Wait for the turn."""
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give()

    def pass_on(self) -> None:
        """Yield to waiting threads if this turn was long enough; return in the next turn."""
        if self._waiting and self._now_s() - self._since_s >= _TURN_S:
            self._give()
            self._take()

    def _take(self) -> None:
        with self._guard:
            comes = threading.Lock() if self._taken else None
            if comes is not None:
                comes.acquire()
                self._waiting.append(comes)
            self._taken = True
        if comes is not None:
            comes.acquire()
        self._since_s = self._now_s()

    def _give(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
