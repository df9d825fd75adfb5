"""Threads that execute blocking calls for an event loop, first come, first served."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """A fixed number of daemon threads: a call that hangs does not keep the process alive."""

    def __init__(self, name: str, number: int = 1) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for _ in range(number):
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call, and return its future. Cancelling the future does not stop the call."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def execute() -> None:
            try:
                settle: Callable[[], None] = partial(outcome.set_result, work())
            except BaseException as error:  # noqa: BLE001 -- the awaiting task raises it
                settle = partial(outcome.set_exception, error)
            # The loop may be closed; then nobody waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_unless_done, outcome, settle)

        self._calls.put(execute)
        return outcome

    def _run(self) -> None:
        while True:
            self._calls.get()()


def _unless_done(outcome: asyncio.Future[Any], settle: Callable[[], None]) -> None:
    if not outcome.done():
        settle()
