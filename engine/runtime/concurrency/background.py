"""Tasks in the background, which may outlive the code that started them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Background(set[asyncio.Task[Any]]):
    """The background tasks that have not ended. The event loop alone would not keep them alive."""

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task. Its error is lost, unless someone awaits the task."""
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)
        task.add_done_callback(mark_retrieved)
        return task


def mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Mark the error of a future as retrieved, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
