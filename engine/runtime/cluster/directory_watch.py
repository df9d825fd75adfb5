"""Notices that the directory's process no longer answers, or that its event loop hangs."""

import asyncio
from collections.abc import Callable
from typing import Final

from engine.runtime.concurrency.beats import Beats
from engine.runtime.contract.errors import ActorDied
from engine.runtime.transport.link_client import LinkClient

_BEATS: Final = 12
"""How often a directory is asked for a sign of life within the timeout. The more often, the sooner after its
last answer the timeout begins."""
_SUSPECTED: Final = 1 / 3
"""After this part of the timeout without an answer, the next directory is prepared."""
_PATIENCE_MAX: Final = 8
"""The longest timeout, as a multiple of the first, while one directory after the other is silent."""
_TRUSTED_BEATS: Final = 90
"""After this many answered beats, the timeout is back to its first value."""
_TURNS: Final = 4
"""How many beats in a row its event loop may leave unanswered."""


class DirectoryWatch:
    """Asks one directory after the other for signs of life.

    Beats show that its process runs, however busy it is, and turns that its event loop makes progress.
    """

    def __init__(self, silent_s: float, hung_s: float) -> None:
        """A directory counts as lost after `silent_s` without a beat, or `hung_s` without a turn."""
        self._silent_s = silent_s
        self._hung_s = hung_s
        self._patience = 1

    async def until_lost(
        self, client: LinkClient, prepare: Callable[[], object], needed: Callable[[], bool] = lambda: True
    ) -> float | None:
        """Wait until a directory counts as lost; return how long it was silent.

        Returns None if the link has ended, or once the watch is not `needed`. `prepare` is called each time
        the directory is silent for a part of the timeout. The timeout doubles if the next one is silent, too:
        replacing it costs a busy machine time.
        """
        watches = [
            asyncio.create_task(self._until_silent(client, prepare, needed)),
            asyncio.create_task(self._until_hung(client)),
        ]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        except ActorDied:
            return None
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _until_silent(
        self, client: LinkClient, prepare: Callable[[], object], needed: Callable[[], bool]
    ) -> float | None:
        beats, answered = Beats(), 0

        def counted() -> None:
            nonlocal answered
            if not beats.missed:
                answered += 1
                if answered == _TRUSTED_BEATS:
                    self._patience = 1
            elif beats.missed == _BEATS * self._patience * _SUSPECTED:
                prepare()

        def lost() -> bool:
            return beats.missed >= _BEATS * self._patience

        async def beat() -> None:
            await client.ask_until_answered("beat", int)

        await beats.count(beat, self._silent_s / _BEATS, lambda: lost() or not needed(), counted)
        if not lost():
            return None
        silent_s = self._silent_s * self._patience
        self._patience = min(2 * self._patience, _PATIENCE_MAX)
        return silent_s

    async def _until_hung(self, client: LinkClient) -> float:
        turns = Beats()

        async def turn() -> None:
            await client.ask_until_answered("turn", int)

        await turns.count(turn, self._hung_s / _TURNS, lambda: turns.missed >= _TURNS)
        return self._hung_s
