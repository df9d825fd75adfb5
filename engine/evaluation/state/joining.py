"""Decides when a memory can join the oldest memory of its node.

Two memories of a node differ only by what happened before the later birth. A view hides that by its time, so
the younger one joins once the clock has moved on. If events share the time of the birth, it waits until all
that it did not see has expired. Without a window nothing expires. Then it waits until both hold the same in
every slice: from then on they always will, because every event does the same to both. Records of times or
values join earlier: once all that is needed of the younger one came after the time of its birth, a view hides
the rest.

Two memories whose operands look back too may be written at different events for as long as the operands tell
the births apart. If all windows inside are bounded, that ends, and what was written until then expires.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Final, NamedTuple

from engine.evaluation.memory import FOREVER, NEVER, Sharing
from engine.evaluation.state.aggregates.entries import Entries
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.columns import Column
from engine.evaluation.state.storage.records import Records

JOINED_AT_ONCE: Final = 16
"""At most this many memories join at one event, because thousands would take seconds."""

DROPPED_AT_ONCE: Final = 50_000
"""After this many entries of joined memories have been dropped, the next memory joins at the next event."""

COMPARED_AT_ONCE: Final = 64
"""At most this many slots of two memories are compared at a time."""

COMPARED_EVERY_US: Final = 10_000_000
"""Memories that differ are compared again after this time."""


class Joining(NamedTuple):
    """A memory, and the time after which it can join the oldest memory of its node."""

    due_us: int
    number: int
    """The order among entries with the same due time."""
    name: NodeName
    since_us: int
    same: int | None
    """The slot below which both read the same in every slot, if the memory joins only once they do."""


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
        """Have every memory wait that does not wait yet, after event `tick` at `now_us`.

        Needed when rules become indexed, and for states of programs in which memories did not join. Before
        rules are indexed, no memory has an older one.
        """
        known = {*self.newborn, *(each.name for each in self._waiting)}
        for name in filter(self._state.has_older, self._state.stores):
            if name in known:
                continue
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
        traits, globals_ = self._state.traits, self._state.globals
        for name, clock_us in self.newborn.items():
            if now_us > clock_us and traits.sharing_of(name.condition) is Sharing.VIEWED:
                self._wait(name, clock_us, clock_us)
                run_us = traits.run_us_of(name.condition)
                if run_us is not None:
                    self._state.starts_of(name.path).born(name.birth, run_us)
                    if not name.path and globals_.starts.last_us < now_us:
                        globals_.starts.add(0, now_us)
            else:
                # Time alone does not tell which events at the very time of the birth came after it, and a sum
                # cannot be split.
                self._wait_for_expiry(name, clock_us)
        self.newborn.clear()

    def due(self, now_us: int, tick: int) -> Iterator[Joining]:
        """Remove and give a few memories that can join at an event at this time, after event `tick`."""
        dropped = 0
        for _ in range(JOINED_AT_ONCE):
            if not self._waiting or self._waiting[0].due_us >= now_us or dropped > DROPPED_AT_ONCE:
                return
            due = heappop(self._waiting)
            own = self._state.stores.get(due.name)
            if own is None or not self._state.has_older(due.name):
                continue
            if due.same is None or self._read_the_same(due, due.same, now_us, tick):
                dropped += 0 if isinstance(own, int) else own.held
                yield due

    def _wait_for_expiry(self, name: NodeName, clock_us: int) -> None:
        """Schedule a memory for when all that it did not see has expired, or else for comparison."""
        traits, since_us = self._state.traits, NEVER
        expires_after_us = traits.expiry_of(name.condition)
        if traits.sharing_of(name.condition) is Sharing.SETTLED:
            settling_us = traits.settling_us_of(name.condition)
            assert settling_us is not None, name
            clock_us = since_us = clock_us + settling_us
        if expires_after_us is not None:
            self._wait(name, clock_us + expires_after_us, since_us)
        elif isinstance(self._state.stores[name], Entries):
            self._wait(name, clock_us, clock_us, 0)
        elif not isinstance(self._state.stores[name], Records):
            self._wait(name, clock_us, NEVER, 0)

    def _read_the_same(self, due: Joining, slot: int, now_us: int, tick: int) -> bool:
        """Return whether a memory reads the same as the oldest of its node. If not, have it wait further.

        In the slots below `slot` it does, or did until the oldest memory was dropped. If the memories of two
        births hold the same, so do those of all births between them. So it reads the same as the next oldest.
        """
        state, name, since_us = self._state, due.name, due.since_us
        due_us = now_us + COMPARED_EVERY_US
        match state.stores[name], state.stores[state.oldest(name)]:
            case Column() as own, Column() as other:
                taken, end = own.table.free_slots.taken, slot + COMPARED_AT_ONCE
                last = min(end, len(taken))
                if isinstance(own, Entries):
                    while slot < last and (not taken[slot] or own.earliest_us(slot) > since_us):
                        slot += 1
                else:
                    while slot < last and (not taken[slot] or own.past_us(slot) == other.past_us(slot)):
                        slot += 1
                if slot >= len(taken):
                    return True
                if slot == end:
                    # All that was compared is the same. The rest is compared after what is due already.
                    due_us = now_us - 1
            case int() as cell, int() as oldest:
                if state.globals.past_us(cell, tick) == state.globals.past_us(oldest, tick):
                    return True
        self._wait(name, due_us, since_us, slot)
        return False

    def _wait(self, name: NodeName, due_us: int, since_us: int, same: int | None = None) -> None:
        stores, waiting = self._state.stores, self._waiting
        if len(waiting) > 2 * len(stores) + JOINED_AT_ONCE:
            # Most entries are of memories that are gone.
            first: dict[NodeName, Joining] = {}
            for each in sorted(waiting):
                if each.name in stores:
                    first.setdefault(each.name, each)
            waiting[:] = first.values()
        self._count += 1
        heappush(waiting, Joining(due_us, self._count, name, since_us, same))
