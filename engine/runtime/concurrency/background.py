"""Background tasks, and values that concurrent callers share for a while."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from engine.runtime.contract.errors import DetectorUnavailable

_log = logging.getLogger(__name__)

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class Background(set[asyncio.Task[Any]]):
    """The running background tasks. The event loop alone would not keep them alive."""

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task. Its error is lost unless the task is awaited."""
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)
        task.add_done_callback(mark_retrieved)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work and return its result. It runs to its end even if the caller is cancelled."""
        return await asyncio.shield(self.begin(work))


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def repeat(
    work: Callable[[], Awaitable[None]], every_s: float, what: str, *, after_s: float = 0.0
) -> None:
    """Do some work periodically. Errors are logged only, because the next attempt may succeed."""
    await asyncio.sleep(after_s)
    while True:
        try:
            await work()
        except DetectorUnavailable as error:
            _log.debug("%s failed: %s", what, error.message)
        except Exception:  # noqa: BLE001 -- see above
            _log.exception("%s failed", what)
        await asyncio.sleep(every_s)


def finished(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorate a method of an object with a `background`: it runs to its end even if its caller is cancelled.

    For methods with effects, which no cancelled caller may cut short.
    """

    @wraps(method)
    async def executed(owner: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        done: T = await owner.background.finish(method(owner, *arguments, **options))
        return done

    return executed


def mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Mark the error of a future as retrieved, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


class Kept(Generic[T]):
    """A cached value, made again on demand once it is too old.

    Concurrent callers share one attempt to make it. For one event loop.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], kept_s: float) -> None:
        """A value is reused for `kept_s`, counted from the moment at which making it began."""
        self._make = make
        self._kept_s = kept_s
        self._under_way: asyncio.Task[T] | None = None
        self._made: tuple[float, T] | None = None
        self._background = Background()

    @property
    def last(self) -> T | None:
        """The last value, however old it is; None if there is none yet."""
        return None if self._made is None else self._made[1]

    async def get(self) -> T:
        """Return a value that is fresh enough. Raises what making it raises.

        Cancelling a caller does not cancel the attempt, which others may share.
        """
        if self._made is not None and asyncio.get_running_loop().time() - self._made[0] < self._kept_s:
            return self._made[1]
        if self._under_way is None:
            self._under_way = self._background.begin(self._make_one())
        return await asyncio.shield(self._under_way)

    async def _make_one(self) -> T:
        began_s = asyncio.get_running_loop().time()
        try:
            value = await self._make()
            self._made = began_s, value
            return value
        finally:
            self._under_way = None
