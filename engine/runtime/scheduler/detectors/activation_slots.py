"""Activation slots: how many detectors may be active at once, and which one gets a slot next."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

_MORE_S: Final = 0.1
"""How long to wait for asked holders to release a slot before twice as many are asked."""
_PATIENCE: Final = 3
"""After so many rounds, holders that activate slowly are asked too, even while processes are starting."""
_DOUBLINGS_MAX: Final = 16
_SPARED_FROM: Final = 8
"""With fewer slots than this, none is reserved for small requests: large ones would lose too much."""


class SlotHolder(Protocol):
    """A detector that holds an activation slot, or waits for one."""

    @property
    def busy(self) -> bool:
        """Whether it has requests to serve."""

    @property
    def used_at_s(self) -> float:
        """When it last served a request."""

    @property
    def activates_fast(self) -> bool:
        """Whether it can be activated again faster than a process starts."""

    @property
    def large(self) -> bool:
        """Whether its turn may take long, because it was activated for large requests."""

    @property
    def replaceable(self) -> bool:
        """Whether another one could be active instead."""

    def make_room(self) -> None:
        """Release the slot for a waiting detector: at once if idle, otherwise after a turn."""

    def stay(self) -> None:
        """Keep the slot after all, unless it is being released already: no detector waits any more."""


class ActivationSlots:
    """A bounded number of slots. While others wait, holders are asked to release theirs.

    Slots are granted in the order of requests. But holders with large requests never get all open slots: one
    is reserved for the others, which would otherwise wait for the end of a large batch each time.

    Idle holders are asked first, least recently used first. Busy holders are asked next, longest-held slot
    first, so that with more busy detectors than slots each gets its turn. A busy holder first completes its
    calls, which may take long: every `_MORE_S` without a released slot, twice as many are asked. Holders
    whose slot turns out not to be needed keep it.

    While processes are still starting, only some slots are open, and the waiting holders share them. At first
    only holders that activate fast are asked meanwhile: the others take longer to activate again than the
    next process takes to start, unless the machine is busy.
    """

    def __init__(self, slots: int, spared: Callable[[], object] = lambda: None) -> None:
        """Open all slots. `spared` is called when large requests wait although a reserved slot is free."""
        assert slots > 0
        self._spared = spared
        self._slots = self._open = slots
        self._more_to_come = False
        self._holders: dict[SlotHolder, None] = {}
        """The holders of slots, in order of acquisition."""
        self._asked: dict[SlotHolder, None] = {}
        """The holders that were asked to release their slots, in order."""
        self._doublings = 0
        """How often more holders were asked since a slot was last granted."""
        self._timer: asyncio.TimerHandle | None = None
        """The timer, set while detectors wait, after which more holders are asked."""
        self._waiting: deque[tuple[SlotHolder, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        return len(self._holders)

    @property
    def wanted(self) -> int:
        """The number of detectors that wait for a slot, once all slots are open or held; until then 0."""
        return len(self._waiting) if max(len(self._holders), self._open) >= self._slots else 0

    def open(self, slots: int, *, more_to_come: bool = True) -> None:
        """Set how many slots are open: at least one, at most all."""
        self._open = max(1, min(slots, self._slots))
        self._more_to_come = more_to_come and self._open < self._slots
        self._hand_out()

    async def acquire(self, holder: SlotHolder) -> None:
        assert holder not in self._holders, "a holder has one slot at most"
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((holder, slot))
        self._hand_out()
        try:
            await slot
        except asyncio.CancelledError:
            # The slot may have been granted just before the caller was cancelled.
            self._waiting = deque(entry for entry in self._waiting if entry[1] is not slot)
            self.release(holder)
            raise

    def adopt(self, holder: SlotHolder) -> None:
        """Give a slot to the holder of an adopted activation, even if none is free."""
        self._holders[holder] = None

    def release(self, holder: SlotHolder) -> None:
        self._holders.pop(holder, None)
        self._asked.pop(holder, None)
        self._hand_out()

    def keep(self, holder: SlotHolder) -> None:
        """Note that an asked holder cannot release its slot now, and ask another one."""
        self._asked.pop(holder, None)
        self._ask(but=holder)

    def _hand_out(self) -> None:
        while len(self._holders) < self._open and (entry := self._next()) is not None:
            self._waiting.remove(entry)
            holder, slot = entry
            if not slot.done():
                self._holders[holder] = None
                self._doublings = 0
                slot.set_result(None)
        if self._waiting and len(self._holders) < self._open:
            self._spared()
        # New holders are asked too, since more may wait than there are slots.
        self._ask()

    def _next(self) -> tuple[SlotHolder, asyncio.Future[None]] | None:
        """Return the holder that gets a free slot; None if no waiting holder may have it."""
        first = next(iter(self._waiting), None)
        if first is None or not first[0].large or not self._full_of_large:
            return first
        return next((entry for entry in self._waiting if not entry[0].large), None)

    @property
    def _full_of_large(self) -> bool:
        """Whether holders with large requests have all slots that they may have."""
        if self._open == 1 or (self._open < _SPARED_FROM and not self._more_to_come):
            return False
        return sum(holder.large for holder in self._holders) >= self._open - 1

    def _ask(self, but: SlotHolder | None = None) -> None:
        missing = (len(self._waiting) << self._doublings) - len(self._asked)
        for holder in list(self._asked)[missing:] if missing < 0 else ():
            del self._asked[holder]
            holder.stay()
        self._ask_more_later()
        if missing <= 0:
            return
        # Slots released by others would never go to detectors with large requests.
        only_large = all(holder.large for holder, _ in self._waiting) and self._full_of_large
        candidates = [
            one
            for one in self._holders
            if one not in self._asked
            and one is not but
            and one.replaceable
            and (one.large or not only_large)
            and (one.activates_fast or not self._more_to_come or self._doublings >= _PATIENCE)
        ]
        # The sort is stable: busy holders stay in the order of acquisition.
        candidates.sort(key=lambda one: (one.busy, 0.0 if one.busy else one.used_at_s))
        for holder in candidates[:missing]:
            self._asked[holder] = None
            holder.make_room()

    def _ask_more_later(self) -> None:
        """Ask more holders after a while, as long as others wait."""
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_MORE_S, self._ask_more)

    def _ask_more(self) -> None:
        self._timer = None
        self._doublings = min(self._doublings + 1, _DOUBLINGS_MAX)
        self._ask()
