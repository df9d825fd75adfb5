"""Notices that the directory's process no longer answers."""

import asyncio
from collections.abc import Callable
from typing import Final

from engine.runtime.contract.errors import ActorDied
from engine.runtime.transport.link_client import LinkClient

_PINGS: Final = 12
"""How often a directory is asked for a sign of life within the timeout. The more often, the sooner after its
last answer the timeout begins."""
_SUSPECTED: Final = 1 / 3
"""After this part of the timeout without an answer, the next directory is prepared."""
_PATIENCE_MAX: Final = 8
"""The longest timeout, as a multiple of the first, while one directory after the other is silent."""
_TRUSTED_PINGS: Final = 90
"""After this many answered pings, the timeout is back to its first value."""


class DirectoryWatch:
    """Asks one directory after the other for signs of life."""

    def __init__(self, silent_s: float) -> None:
        """A directory counts as lost after `silent_s` without an answer."""
        self._silent_s = silent_s
        self._patience = 1

    async def until_lost(self, client: LinkClient, prepare: Callable[[], object]) -> float | None:
        """Wait until a directory counts as lost; return how long it was silent, None if the link has ended.

        `prepare` is called each time it is silent for a part of the timeout. The timeout doubles if the next
        one is silent, too: replacing it costs a busy machine time.
        """
        loop = asyncio.get_running_loop()
        answered = 0
        while client.link.usable:
            await asyncio.sleep(self._silent_s / _PINGS)
            silent_s = self._silent_s * self._patience
            suspecting = loop.call_later(silent_s * _SUSPECTED, prepare)
            try:
                async with asyncio.timeout(silent_s):
                    await client.ask("ping", int)
            except ActorDied:
                return None
            except TimeoutError:
                self._patience = min(2 * self._patience, _PATIENCE_MAX)
                return silent_s
            finally:
                suspecting.cancel()
            answered += 1
            if answered == _TRUSTED_PINGS:
                self._patience = 1
        return None
