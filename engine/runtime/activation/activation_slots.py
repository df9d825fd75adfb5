"""Who may be awake: a bounded number of slots, given in the order of asking."""

import asyncio
from collections import deque
from typing import Protocol


class SlotHolder(Protocol):
    """Something that is awake, or wants to be."""

    @property
    def busy(self) -> bool:
        """Whether it has something to do now."""

    @property
    def used_at_s(self) -> float:
        """When it last had something to do."""

    @property
    def activates_fast(self) -> bool:
        """Whether it can be woken again faster than a process can be started."""

    def make_room(self) -> None:
        """Take note that another wants the place: `release` soon, at once if not busy, else after a turn."""


class ActivationSlots:
    """Places for those that are awake. While others wait, those within are asked for theirs.

    First those that are not busy, least recently used first; then the busy ones, longest within first, so
    that with more busy ones than slots each has its turn.

    Not all slots are open while processes are still being started: those that wait share the ones there are,
    in turn. Then only those that wake fast are asked to leave: a process will have started before another one
    could be woken again.
    """

    def __init__(self, slots: int) -> None:
        """Begin with all slots open."""
        assert slots > 0
        self._slots = self._open = slots
        self._holders: dict[SlotHolder, None] = {}
        """In the order of entering."""
        self._asked: set[SlotHolder] = set()
        self._waiting: deque[tuple[SlotHolder, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        """How many have a slot."""
        return len(self._holders)

    def open(self, slots: int) -> None:
        """Have so many slots open from now on: at least one, and at most all."""
        self._open = max(1, min(slots, self._slots))
        self._hand_out()

    async def acquire(self, holder: SlotHolder) -> None:
        """Come back with a slot."""
        assert holder not in self._holders, "nobody has two slots"
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((holder, slot))
        self._hand_out()
        try:
            await slot
        except asyncio.CancelledError:
            # Either way: it may have been handed out just before.
            self._waiting = deque(entry for entry in self._waiting if entry[1] is not slot)
            self.release(holder)
            raise

    def release(self, holder: SlotHolder) -> None:
        """Give a place back."""
        self._holders.pop(holder, None)
        self._asked.discard(holder)
        self._hand_out()

    def keep(self, holder: SlotHolder) -> None:
        """Say that one who was asked cannot leave for now; another is asked in its stead."""
        self._asked.discard(holder)
        self._ask(but=holder)

    def _hand_out(self) -> None:
        while self._waiting and len(self._holders) < self._open:
            holder, slot = self._waiting.popleft()
            if not slot.done():
                self._holders[holder] = None
                slot.set_result(None)
        # Also those who have just entered: more may wait than there are slots.
        self._ask()

    def _ask(self, but: SlotHolder | None = None) -> None:
        missing = len(self._waiting) - len(self._asked)
        if missing <= 0:
            return
        more_to_come = self._open < self._slots
        candidates = [
            one
            for one in self._holders
            if one not in self._asked and one is not but and (one.activates_fast or not more_to_come)
        ]
        # Sorting is stable, and keeps busy ones in the order of entering.
        candidates.sort(key=lambda one: (one.busy, 0.0 if one.busy else one.used_at_s))
        for holder in candidates[:missing]:
            self._asked.add(holder)
            holder.make_room()
