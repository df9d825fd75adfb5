"""Executes calls in batches: calls that come while one is under way form the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from engine.runtime.concurrency.background import Background

T = TypeVar("T")
R = TypeVar("R")


class Batches(Generic[T, R]):
    """Joins calls to batches, one under way at a time.

    `execute` returns the results of a batch, in order. What it raises is raised by all calls of the batch.
    """

    def __init__(self, execute: Callable[[Sequence[T]], Awaitable[Sequence[R]]], calls_max: int) -> None:
        self._execute = execute
        self._calls_max = calls_max
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._under_way = False
        self._background = Background()

    async def call(self, wanted: T) -> R:
        """Return the result of one call. Cancelling the caller does not cancel the call."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, result))
        if not self._under_way:
            self._under_way = True
            self._background.begin(self._run())
        return await result

    async def _run(self) -> None:
        try:
            while batch := self._waiting[: self._calls_max]:
                del self._waiting[: self._calls_max]
                await self._run_one(batch)
        finally:
            self._under_way = False

    async def _run_one(self, batch: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            results = await self._execute([wanted for wanted, _ in batch])
        except Exception as error:  # noqa: BLE001 -- the callers raise it
            for _, result in batch:
                if not result.done():
                    result.set_exception(error)
        else:
            for (_, result), value in zip(batch, results, strict=True):
                if not result.done():
                    result.set_result(value)
