"""When memories of the same node, of different births, can be told apart no more, and become one."""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

from engine.evaluation.requirements import expiry_of
from engine.evaluation.state.slices import NodeName, State
from engine.evaluation.temporal import FOREVER, NEVER

JOINED_AT_ONCE: Final = 16
"""So many memories join older ones at one event: with thousands it would take seconds."""


class Joining(NamedTuple):
    """A memory that cannot be told from the oldest of its node after a time, and is to join it then."""

    due_us: int
    number: int
    """Tells those of one time apart, in the order in which they came."""
    name: NodeName
    since_us: int


class Joins:
    """The memories that wait to join older ones."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.newborn: dict[NodeName, int] = {}
        """Memories that no event has met yet, of nodes with an older one, and the clock at their birth."""
        self._waiting: list[Joining] = []
        """A heap."""
        self._count = 0

    @property
    def waiting(self) -> list[Joining]:
        """The others, the first one first."""
        return sorted(self._waiting)

    def restore(self, newborn: Mapping[NodeName, int], waiting: Iterable[Joining]) -> None:
        """Take what waited before."""
        self.newborn.update(newborn)
        self._waiting = list(waiting)
        self._count = len(self._waiting)

    def born(self, names: Iterable[NodeName], now_us: int) -> None:
        """Take memories that the next event is the first to meet."""
        self.newborn |= dict.fromkeys(filter(self._state.has_older, names), now_us)

    def await_all(self, tick: int, now_us: int) -> None:
        """Have every memory wait for its time, after event `tick`, whose time was `now_us`."""
        for name in filter(self._state.has_older, self._state.stores):
            if name.birth == tick:
                self.newborn[name] = now_us
            else:
                self._wait_for_expiry(name, now_us)

    def are_due(self, now_us: int) -> bool:
        """Tell whether an event at that time has to ask for what is due."""
        return bool(self.newborn) or (bool(self._waiting) and self._waiting[0].due_us < now_us)

    def meet(self, now_us: int) -> None:
        """Have what was newborn wait: an event at that time meets it."""
        for name, clock_us in self.newborn.items():
            if now_us > clock_us:
                self._wait(name, clock_us, clock_us)
            else:
                # Events at the very time of the birth came both before and after it.
                self._wait_for_expiry(name, clock_us)
        self.newborn.clear()

    def next_due(self, now_us: int) -> Joining | None:
        """Give what can join an older memory from an event at that time on, one after another."""
        while self._waiting and self._waiting[0].due_us < now_us:
            due = heappop(self._waiting)
            if due.name in self._state.stores and self._state.has_older(due.name):
                return due
        return None

    def _wait_for_expiry(self, name: NodeName, clock_us: int) -> None:
        """Have a memory wait until all that it did not see has expired, if that ever happens."""
        expires_after_us = expiry_of(name.condition)
        if expires_after_us is not None:
            self._wait(name, clock_us + expires_after_us, NEVER)

    def _wait(self, name: NodeName, due_us: int, since_us: int) -> None:
        stores, waiting = self._state.stores, self._waiting
        if due_us >= FOREVER:
            return
        if len(waiting) > 2 * len(stores) + JOINED_AT_ONCE:
            # Most are of memories that have gone.
            first: dict[NodeName, Joining] = {}
            for each in sorted(waiting):
                if each.name in stores:
                    first.setdefault(each.name, each)
            waiting[:] = first.values()
        self._count += 1
        heappush(waiting, Joining(due_us, self._count, name, since_us))
