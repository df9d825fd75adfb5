"""Why a detector is to leave its worker: another one waits for its slot, or it was there for a tick only."""

import asyncio
from collections.abc import Awaitable, Callable


class Leaving:
    """Whether an active detector is to be passivated. `tell` tells its worker, if there is one."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self.room_wanted = False
        """Whether another detector waits for the slot."""
        self._tell = tell
        self._for_tick: asyncio.Event | None = None
        """Set once the detector has left again, or has to stay; None unless it was activated for a tick."""

    @property
    def wanted(self) -> bool:
        """Whether the detector is to leave."""
        return self.room_wanted or self._for_tick is not None

    def make_room(self, *, wanted: bool) -> None:
        """Note whether another detector waits for the slot."""
        self.room_wanted = wanted
        self._tell(self.wanted)

    async def activate_for_tick(self, activation: Awaitable[object]) -> None:
        """Have the detector leave right after its activation; return once it has, or is needed."""
        ticked = self._for_tick = asyncio.Event()
        try:
            await activation
            # It is set already if the activation has failed.
            await ticked.wait()
        finally:
            self.needed()

    def needed(self) -> None:
        """Let the detector stay, even if it was activated for a tick only."""
        if self._for_tick is not None:
            self._for_tick.set()
            self._for_tick = None
            self._tell(self.wanted)

    def left(self) -> None:
        """Note that the detector is active nowhere."""
        self.room_wanted = False
        self.needed()
