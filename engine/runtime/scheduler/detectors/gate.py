"""Whether requests for a detector are refused, and whether it should leave its worker."""

import asyncio
from collections.abc import Awaitable, Callable

from engine.runtime.contract.errors import STARTING, DetectorUnavailable, no_such_detector, shutting_down


class Gate:
    """Admits requests for a detector until it is deleted or closed, or an activation fails."""

    def __init__(self, detector_id: str, retry_s: float) -> None:
        self._detector_id = detector_id
        self._retry_s = retry_s
        self._loop = asyncio.get_running_loop()
        self.deleted = False
        self.closing = False
        self._failure = ""
        self._refused_until_s = 0.0

    def check(self) -> None:
        """Raise Refusal 1200, and DetectorUnavailable 1501 or 1503, if requests are refused."""
        if self.deleted:
            raise no_such_detector(self._detector_id)
        if self.closing:
            raise shutting_down()
        if self.refuses_for_now:
            message = f"the detector cannot be activated now: {self._failure}"
            raise DetectorUnavailable(STARTING, message, self._retry_s)

    def refuse_for_now(self, reason: str) -> float:
        """Refuse requests for `retry_s` because of a failure; return when that ends."""
        self._failure = reason
        self._refused_until_s = self._loop.time() + self._retry_s
        return self._refused_until_s

    @property
    def refuses_for_now(self) -> bool:
        """Whether the last failure is too recent to try again."""
        return self._loop.time() < self._refused_until_s


class Leaving:
    """Whether an active detector should be passivated. `tell` passes that on to its worker, if any."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self.room_wanted = False
        """Whether another detector waits for the slot."""
        self._tell = tell
        self._for_tick: asyncio.Event | None = None
        """Set once the detector has left again or must stay; None unless it was activated for a tick."""

    @property
    def wanted(self) -> bool:
        """Whether the detector should leave."""
        return self.room_wanted or self._for_tick is not None

    def make_room(self, *, wanted: bool) -> None:
        """Note whether another detector waits for the slot."""
        self.room_wanted = wanted
        self._tell(self.wanted)

    async def activate_for_tick(self, activation: Awaitable[object]) -> None:
        """Let the detector leave right after its activation; return once it has left or is needed."""
        ticked = self._for_tick = asyncio.Event()
        try:
            await activation
            # The event is set already if the activation has failed.
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
