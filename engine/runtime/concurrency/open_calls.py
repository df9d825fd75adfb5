"""Calls with a deadline that can all be ended at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class OpenCalls:
    """The calls in progress. Each may take `deadline_s`, and raises TimeoutError after that."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._timeouts: set[asyncio.Timeout] = set()
        self._refused = False

    def refused(self) -> bool:
        """Whether `refuse_all` was called. No call may begin after that."""
        return self._refused

    def refuse_all(self) -> None:
        """End all calls now."""
        self._refused = True
        for timeout in self._timeouts:
            # A call whose time is over is ending already.
            if not timeout.expired():
                timeout.reschedule(0.0)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Make one call within this context."""
        async with asyncio.timeout(self._deadline_s) as timeout:
            self._timeouts.add(timeout)
            try:
                yield
            finally:
                self._timeouts.discard(timeout)
