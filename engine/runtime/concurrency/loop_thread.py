"""An event loop in a thread of its own, which goes on while the loop that serves callers is held up."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future  # noqa: TC003 -- the annotation of a function that others inspect
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """A running event loop."""

    def __init__(self, name: str) -> None:
        self.loop = uvloop.new_event_loop()
        self._ended = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin a task; callable from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return or raise what a task returns or raises. Cancelling the caller cancels the task."""
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
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.loop.stop()


async def turn_of(loop: asyncio.AbstractEventLoop) -> None:
    """Return once the loop of another thread has turned."""
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_nothing(), loop))


async def _nothing() -> None:
    pass
