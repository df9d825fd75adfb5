"""Who may be awake: a bounded number of places, given in the order of asking."""

import asyncio
from collections import deque
from typing import Protocol


class Resident(Protocol):
    """Something that is awake, or wants to be."""

    @property
    def busy(self) -> bool:
        """Whether it has something to do now."""

    @property
    def used_at_s(self) -> float:
        """When it last had something to do."""

    @property
    def wakes_fast(self) -> bool:
        """Whether it can be woken again faster than a process can be started."""

    def make_room(self) -> None:
        """Take note that another wants the place: `leave` soon, at once if not busy, else after a turn."""


class Residency:
    """Places for those that are awake. While others wait, those within are asked for theirs.

    First those that are not busy, least recently used first; then the busy ones, longest within first, so
    that with more busy ones than places each has its turn.

    Not all places are open while processes are still being started: those that wait share the ones there are,
    in turn. Then only those that wake fast are asked to leave: a process will have started before another one
    could be woken again.
    """

    def __init__(self, places: int) -> None:
        """Begin with all places open."""
        assert places > 0
        self._places = self._open = places
        self._within: dict[Resident, None] = {}
        """In the order of entering."""
        self._asked: set[Resident] = set()
        self._waiting: deque[tuple[Resident, asyncio.Future[None]]] = deque()

    @property
    def within(self) -> int:
        """How many have a place."""
        return len(self._within)

    def open(self, places: int) -> None:
        """Have so many places open from now on: at least one, and at most all."""
        self._open = max(1, min(places, self._places))
        self._hand_out()

    async def enter(self, resident: Resident) -> None:
        """Come back with a place."""
        assert resident not in self._within, "nobody has two places"
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((resident, place))
        self._hand_out()
        try:
            await place
        except asyncio.CancelledError:
            # Either way: it may have been handed out just before.
            self._waiting = deque(entry for entry in self._waiting if entry[1] is not place)
            self.leave(resident)
            raise

    def leave(self, resident: Resident) -> None:
        """Give a place back."""
        self._within.pop(resident, None)
        self._asked.discard(resident)
        self._hand_out()

    def stay(self, resident: Resident) -> None:
        """Say that one who was asked cannot leave for now; another is asked in its stead."""
        self._asked.discard(resident)
        self._ask(but=resident)

    def _hand_out(self) -> None:
        while self._waiting and len(self._within) < self._open:
            resident, place = self._waiting.popleft()
            if not place.done():
                self._within[resident] = None
                place.set_result(None)
        # Also those who have just entered: more may wait than there are places.
        self._ask()

    def _ask(self, but: Resident | None = None) -> None:
        missing = len(self._waiting) - len(self._asked)
        if missing <= 0:
            return
        more_to_come = self._open < self._places
        candidates = [
            one
            for one in self._within
            if one not in self._asked and one is not but and (one.wakes_fast or not more_to_come)
        ]
        # Sorting is stable, and keeps busy ones in the order of entering.
        candidates.sort(key=lambda one: (one.busy, 0.0 if one.busy else one.used_at_s))
        for resident in candidates[:missing]:
            self._asked.add(resident)
            resident.make_room()
