"""Tasks in the background, which may outlive the code that started them."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
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

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Execute work to its end even if the caller is cancelled meanwhile, and return its result."""
        return await asyncio.shield(self.begin(work))


class HasBackground(Protocol):
    """An object with tasks in the background."""

    @property
    def background(self) -> Background:
        """Its tasks."""


S = TypeVar("S", bound=HasBackground)


def finished(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Have a method executed to its end even if its caller is cancelled meanwhile.

    It is for methods with effects: the caller only waits, so no caller that leaves cuts them short.
    """

    @wraps(method)
    async def executed(owner: S, /, *arguments: P.args, **options: P.kwargs) -> T:
        return await owner.background.finish(method(owner, *arguments, **options))

    return executed


def mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Mark the error of a future as retrieved, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
