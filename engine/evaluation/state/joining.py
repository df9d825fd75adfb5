"""Decides when a memory can join the oldest memory of its node.

Two memories of a node differ only by what happened before the later birth. A view hides that by its time, so
the younger one joins once the clock has moved on. If events share the time of the birth, it waits until all
that it did not see has expired.
"""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

from engine.evaluation.memory import FOREVER, NEVER, Sharing
from engine.evaluation.state.slices import NodeName, State

JOINED_AT_ONCE: Final = 16
"""At most this many memories join at one event, because thousands would take seconds."""


class Joining(NamedTuple):
    """A memory, and the time after which it can join the oldest memory of its node."""

    due_us: int
    number: int
    """Orders the entries of one due time."""
    name: NodeName
    since_us: int


class Joins:
    """The memories that wait to join older ones."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.newborn: dict[NodeName, int] = {}
        """The memories that no event has reached since their birth, and the clock at that time."""
        self._waiting: list[Joining] = []
        """A heap of all others."""
        self._count = 0

    @property
    def waiting(self) -> list[Joining]:
        """All but the newborn, in the order in which they are due."""
        return sorted(self._waiting)

    def restore(self, newborn: Mapping[NodeName, int], waiting: Iterable[Joining]) -> None:
        """Restore what a snapshot holds."""
        self.newborn.update(newborn)
        self._waiting = list(waiting)
        self._count = len(self._waiting)

    def born(self, names: Iterable[NodeName], now_us: int) -> None:
        """Add memories that the next event is the first to reach."""
        self.newborn |= dict.fromkeys(filter(self._state.has_older, names), now_us)

    def await_all(self, tick: int, now_us: int) -> None:
        """Add all memories when rules become indexed, after event `tick` at `now_us`."""
        for name in filter(self._state.has_older, self._state.stores):
            if name.birth == tick:
                self.newborn[name] = now_us
            else:
                self._wait_for_expiry(name, now_us)

    def clear(self) -> None:
        """Forget all, when rules are no longer indexed."""
        self.newborn.clear()
        self._waiting.clear()

    @property
    def due_us(self) -> int:
        """The time after which an event has to call `meet` and `next_due`."""
        if self.newborn:
            return NEVER
        return self._waiting[0].due_us if self._waiting else FOREVER

    def meet(self, now_us: int) -> None:
        """Schedule the newborn memories, which an event at this time reaches."""
        for name, clock_us in self.newborn.items():
            if now_us > clock_us and self._state.traits.sharing_of(name.condition) is Sharing.VIEWED:
                self._wait(name, clock_us, clock_us)
            else:
                # Of events at the very time of the birth, time alone cannot tell which came after it. From a
                # sum, nothing that is in it can be taken out.
                self._wait_for_expiry(name, clock_us)
        self.newborn.clear()

    def next_due(self, now_us: int) -> Joining | None:
        """Remove and give the next memory that can join at an event at this time, or None."""
        while self._waiting and self._waiting[0].due_us < now_us:
            due = heappop(self._waiting)
            if due.name in self._state.stores and self._state.has_older(due.name):
                return due
        return None

    def _wait_for_expiry(self, name: NodeName, clock_us: int) -> None:
        """Schedule a memory for when all that it did not see has expired. Without a window, nothing does."""
        expires_after_us = self._state.traits.expiry_of(name.condition)
        if expires_after_us is not None:
            self._wait(name, clock_us + expires_after_us, NEVER)

    def _wait(self, name: NodeName, due_us: int, since_us: int) -> None:
        stores, waiting = self._state.stores, self._waiting
        if due_us >= FOREVER:
            return
        if len(waiting) > 2 * len(stores) + JOINED_AT_ONCE:
            # Most entries are of memories that are gone.
            first: dict[NodeName, Joining] = {}
            for each in sorted(waiting):
                if each.name in stores:
                    first.setdefault(each.name, each)
            waiting[:] = first.values()
        self._count += 1
        heappush(waiting, Joining(due_us, self._count, name, since_us))
