"""Blocking calls in threads of their own, so that the event loop continues."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def off_loop(call: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run a call in a daemon thread, and return its future.

    Cancelling the future does not stop the call. A call that hangs does not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(put: Callable[[], None]) -> None:
        if not outcome.done():
            put()

    def run() -> None:
        try:
            put = partial(outcome.set_result, call())
        except BaseException as error:  # noqa: BLE001 -- the awaiting task raises it
            put = partial(outcome.set_exception, error)
        # The loop may be closed; then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, put)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome
