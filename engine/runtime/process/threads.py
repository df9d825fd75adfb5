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


def off_loop(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Execute a call in a thread of its own, and return its future."""
    outcome, execute = _prepared(call)
    threading.Thread(target=execute, name=name, daemon=True).start()
    return outcome


class Threads:
    """A fixed number of threads, which execute calls first come, first served."""

    def __init__(self, name: str, number: int = 1) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for _ in range(number):
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Execute a call, and return its future."""
        outcome, execute = _prepared(call)
        self._calls.put(execute)
        return outcome

    def _run(self) -> None:
        while True:
            self._calls.get()()


def _prepared(call: Callable[[], T]) -> tuple[asyncio.Future[T], Callable[[], None]]:
    """Return the future of a call, and what executes the call in any thread."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def execute() -> None:
        try:
            settle: Callable[[], None] = partial(outcome.set_result, call())
        except BaseException as error:  # noqa: BLE001 -- the awaiting task raises it
            settle = partial(outcome.set_exception, error)
        # The loop may be closed; then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_unless_done, outcome, settle)

    return outcome, execute


def _unless_done(outcome: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not outcome.done():
        settle()
