"""A value that is made once for all who ask for it within a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from engine.runtime.concurrency.background import Background

T = TypeVar("T")


class Kept(Generic[T]):
    """Makes a value when somebody asks and the last one is too old.

    One is made at a time, and all who ask meanwhile get that one. For one event loop.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], kept_s: float) -> None:
        """A value is given to others for `kept_s` from the moment at which making it began."""
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

        Cancelling the caller does not cancel the making, for which others may wait.
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
