"""Blocking calls in daemon threads, so that the event loop goes on, and a call that hangs delays no exit.

Cancelling the future of a call does not stop the call.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_Call = tuple[Callable[[], Any], asyncio.Future[Any]]


def off_loop(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Execute a call in a thread of its own, and return its future."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    threading.Thread(target=_execute, args=(call, outcome), name=name, daemon=True).start()
    return outcome


class Threads:
    """A fixed number of threads, which execute calls first come, first served."""

    def __init__(self, name: str, number: int = 1) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._number = number
        for _ in range(number):
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Execute a call, and return its future."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, outcome))
        return outcome

    def end(self) -> None:
        """End the threads, each after the calls before this one."""
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
    # The loop may be closed; then nobody waits.
    with contextlib.suppress(RuntimeError):
        outcome.get_loop().call_soon_threadsafe(_unless_done, outcome, settle)


def _unless_done(outcome: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not outcome.done():
        settle()
