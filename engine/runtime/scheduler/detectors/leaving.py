"""Why a detector is to leave its worker: another one waits for its slot, or it was woken for a tick only."""

import asyncio
from collections.abc import Awaitable, Callable


class Leaving:
    """Whether an active detector is to be passivated. `tell` tells its worker, if there is one."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self.room_wanted = False
        """Whether another detector waits for the slot."""
        self._tell = tell
        self._woken: asyncio.Event | None = None
        """Set once the detector has left again, or has to stay; None unless it was woken for a tick."""

    @property
    def wanted(self) -> bool:
        """Whether the detector is to leave."""
        return self.room_wanted or self._woken is not None

    def make_room(self, *, wanted: bool) -> None:
        """Note whether another detector waits for the slot."""
        self.room_wanted = wanted
        self._tell(self.wanted)

    async def wake(self, activation: Awaitable[object]) -> None:
        """Have the detector leave right after its activation; return once it has, or is needed."""
        woken = self._woken = asyncio.Event()
        try:
            await activation
            # It is set already if the activation has failed.
            await woken.wait()
        finally:
            self.needed()

    def needed(self) -> None:
        """Let the detector stay, even if it was woken for a tick only."""
        if self._woken is not None:
            self._woken.set()
            self._woken = None
            self._tell(self.wanted)

    def left(self) -> None:
        """Note that the detector is active nowhere."""
        self.room_wanted = False
        self.needed()
