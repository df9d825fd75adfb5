"""The state of a detector: a memory for each temporal node, with or without keys, and the live keys.

The name of a memory is the node's condition, the path of keys around it, and its birth. Rules that were born
together share it. The name does not depend on how a rule is compiled.

Once rules are indexed, a memory is updated by itself, and rules read it through a View. Rules of a later
birth then join the oldest memory of the same node, as soon as it reads like their own. A shared
memory may read memories of its own birth inside it. It then counts as a user of them, as a rule does.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from engine.evaluation.memory import FOREVER, NEVER, Regime, Sharing, Traits
from engine.evaluation.paths import Path
from engine.evaluation.state.node_names import Joined, NamesByBirth, NodeName
from engine.evaluation.state.removal.eviction import Evicted, Eviction
from engine.evaluation.state.removal.expiry import has_expired
from engine.evaluation.state.removal.incremental_expiry import bloated, expire_some
from engine.evaluation.state.storage.columns import Column, ColumnTable
from engine.evaluation.state.storage.slots.starts import NO_BIRTH, Starts
from engine.evaluation.state.storage.tables import KeyTable
from engine.evaluation.state.unkeyed import Globals, Keyless, new_records
from engine.evaluation.state.views import Store, View

if TYPE_CHECKING:
    from engine.language.condition import Condition

SWEPT_FROM: Final = 1 << 14
"""Up to this many live keys, expired keys are kept, so that a key that returns finds its slot."""

SETTLE_EVERY: Final = 32
"""Every this many events, a detector tidies its tables if they need it."""


class State:
    """The memories of a detector by name, and the keys that they are kept for."""

    def __init__(self, live_max: int, bytes_max: int, traits: Traits) -> None:
        self.live_max, self.bytes_max = live_max, bytes_max
        self.traits = traits
        self.swept_from = SWEPT_FROM
        self.indexed = False
        """Whether rules are indexed. Until then every event updates every memory."""
        self.globals = Globals(self.weigh_unkeyed)
        self.stores: dict[NodeName, Store] = {}
        self.users: dict[NodeName, int] = {}
        """How many rules use each memory, and how many names have joined it."""
        self.joined: dict[NodeName, Joined] = {}
        """The names without a memory of their own."""
        self.readers: NamesByBirth[NodeName] = NamesByBirth()
        """The names that have joined each memory."""
        self.inner: dict[NodeName, tuple[NodeName, ...]] = {}
        """The names of the memories inside each memory that others have joined. It counts as a user of them:
        its updates need them even when the rules of its birth are gone."""
        self.views: dict[NodeName, View] = {}
        """The view of each memory that can be shared, once rules are indexed."""
        self._shared: NamesByBirth[tuple[Condition, Path]] = NamesByBirth()
        """The names of memories that can be shared, by node and path."""
        self.tables: dict[Path, ColumnTable] = {}
        self.live = 0
        """The number of live keys, over all paths. An expired key counts until it is dropped."""
        self.bytes = 0
        """The estimated size of all memories and keys; see `sizes.py`."""
        self.unkeyed_bytes = 0
        """The same for memories without keys, which are not evicted and have a bound of their own."""
        self.due = False
        """Whether a bound is passed, so that `settle` must be called after this event."""
        self.tracking = False
        """Whether the tables log the slots that events touch."""
        self.eviction = Eviction(self)

    def acquire(self, name: NodeName, tick: int) -> Store:
        """Return the memory of a name, a new one if there is none, and count one more use."""
        if name in self.joined:
            self.users[name] += 1
            return self.store_of(name)
        store = self.stores.get(name)
        if store is None:
            store = self.stores[name] = self.new_store(name, tick)
            self.users[name] = 0
            if self.indexed:
                self._set_regime(name, store)
        self.users[name] += 1
        return store

    def new_store(self, name: NodeName, tick: int) -> Store:
        """Return a new memory for a name, which is complete up to event `tick`."""
        recorded = self.traits.recorded_of(name.condition)
        if not name.path:
            if recorded is None:
                return self.globals.new_cell(tick)
            return new_records(recorded, Keyless(self.weigh_unkeyed, self.globals))
        table = self.table(name.path)
        column = Column(table, self.traits.expiry_of(name.condition), tick)
        if recorded is not None:
            column = new_records(recorded, table)
        table.columns.append(column)
        return column

    def memory_of(self, name: NodeName) -> NodeName:
        """Return the name of the memory that rules read under a name."""
        joined = self.joined.get(name)
        return joined.name if joined else name

    def store_of(self, name: NodeName) -> Store:
        """Return the memory that rules read under a name."""
        return self.stores[self.memory_of(name)]

    def has_older(self, name: NodeName) -> bool:
        """Return whether there is an older memory of the same node, which can be shared."""
        shared = self._shared.get(name[:2])
        return shared is not None and shared[0].birth < name.birth

    def oldest(self, name: NodeName) -> NodeName:
        """Return the name of the oldest memory of the same node, which can be shared."""
        return self._shared[name[:2]][0]

    def join(self, name: NodeName, since_us: int, now_us: int) -> None:
        """Have a name read the oldest memory of its node, where only times later than `since_us` count.

        The name's own memory is dropped. From now on both must read the same.
        """
        oldest = self.oldest(name)
        assert oldest != name, name
        for younger in self.readers.from_birth_on(oldest, name)[:1]:
            # The time of this birth may not have been known, but it was no later than that of the next.
            if NEVER < (known_us := self.joined[younger].since_us) < since_us:
                since_us = known_us
        self.users[oldest] += 1
        if self.traits.sharing_of(name.condition) is Sharing.SETTLED:
            # This memory may hold a later time than the other one. That time has expired, but without it the
            # keys may have expired earlier.
            self.eviction.renew_later(name.path)
        # No key is freed: whatever this memory holds that has not expired, the other one holds too, and as
        # long.
        self._drop(name, now_us, keys=False)
        self._set_joined(name, Joined(oldest, since_us), self.views[name])
        self.use_inner(oldest)

    def use_inner(self, oldest: NodeName) -> None:
        """Have a memory that others have joined use those inside it, if it does not yet."""
        if oldest in self.inner:
            return
        inner = self.traits.inner_of(*oldest)
        if inner:
            self.inner[oldest] = tuple([NodeName(*node, oldest.birth) for node in inner])
            for name in self.inner[oldest]:
                self.acquire(name, 0)

    def restore_joined(self, name: NodeName, joined: Joined) -> None:
        """Restore a name that had joined another, before its rules are added; then call `use_inner`.

        The memory of the other may still be missing.
        """
        store = self.acquire(joined.name, 0)
        self._set_joined(name, joined, View(store, joined.since_us))
        self.users[name] = 0

    def _set_joined(self, name: NodeName, joined: Joined, view: View) -> None:
        view.store, view.since_us = self.stores[joined.name], joined.since_us
        self.joined[name], self.views[name] = joined, view
        self.readers.add(joined.name, name)

    def release(self, name: NodeName, now_us: int) -> tuple[NodeName, ...]:
        """Give a memory back. The last user drops it, and the keys that only it held.

        Return the names to release next: those of the memories inside a memory that no name has joined any
        more.
        """
        joined = self.joined.get(name)
        self._release(name, now_us, first=True)
        if joined is None or joined.name in self.readers:
            return ()
        return self.inner.pop(joined.name, ())

    def _release(self, name: NodeName, now_us: int, *, first: bool) -> None:
        """Release a memory. With `first`, the reader that leaves was the one born first."""
        self.users[name] -= 1
        if self.users[name]:
            if first and self.users[name] == len(self.readers.get(name, ())):
                self._drop_unread(name, now_us)
            return
        del self.users[name]
        self.views.pop(name, None)
        if name in self.joined:
            oldest = self.joined.pop(name).name
            place = self.readers.remove(oldest, name)
            self._release(oldest, now_us, first=not place)
        else:
            self._drop(name, now_us, keys=True)

    def _drop_unread(self, name: NodeName, now_us: int) -> None:
        """Drop what is older than every remaining reader of a memory, and the keys that only that held."""
        store, first = self.stores[name], self.readers[name][0]
        since_us = self.joined[first].since_us
        # A memory that waits to join this one may need what all its readers ignore.
        waits = len(self._shared[name[:2]]) > 1
        if waits or isinstance(store, int) or since_us == NEVER:
            return
        table = store.table
        slots = range(len(table.keys)) if store.clocked else store.slots()
        if name.path and self.traits.run_us_of(name.condition) is not None:
            _begin_after(store, since_us, first.birth)
        else:
            store.drop_until(since_us, first.birth)
        if name.path:
            self.free_expired(table, slots, now_us)
            self.eviction.renew()

    def free_expired(self, table: ColumnTable, slots: Iterable[int], now_us: int) -> None:
        """Free those slots whose keys have expired and have no entry."""
        for slot in slots:
            if table.free_slots.taken[slot] and not table.held[slot] and has_expired(table, slot, now_us):
                table.free(slot)

    def _drop(self, name: NodeName, now_us: int, *, keys: bool) -> None:
        """Drop a memory and, if `keys`, the keys that only it held."""
        store = self.stores.pop(name)
        if name[:2] in self._shared:
            self._shared.remove(name[:2], name)
        if isinstance(store, int):
            self.globals.drop(store)
            self._drop_starts(name)
            return
        if not name.path:
            store.drop_all()
            return
        table = store.table
        table.columns.remove(store)
        slots: Iterable[int] = store.slots()
        if store.clocked:
            slots = range(len(table.keys))
            table.remove_clock(store)
        store.drop_all()
        self._drop_starts(name)
        if not keys:
            return
        self.free_expired(table, slots, now_us)
        if not table.columns:
            for slot in range(len(table.keys)):
                if table.free_slots.taken[slot]:
                    table.free(slot)
            del self.tables[name.path]
        self.eviction.renew()

    def weigh(self, more_bytes: int) -> None:
        """Add to the estimated size of the live keys and their memories."""
        self.bytes += more_bytes
        if self.keyed_bytes > self.bytes_max:
            self.due = True

    def weigh_unkeyed(self, more_bytes: int) -> None:
        """Add to the estimated size of memories without keys."""
        self.bytes += more_bytes
        self.unkeyed_bytes += more_bytes

    @property
    def keyed_bytes(self) -> int:
        """The estimated size of the live keys and their memories."""
        return self.bytes - self.unkeyed_bytes

    def starts_of(self, path: Path) -> Starts:
        """Return the first events after births in the slices of a path."""
        return self.tables[path].starts if path else self.globals.starts

    def _drop_starts(self, dropped: NodeName) -> None:
        """Drop the first events after births, if the memory that was dropped was the last to need them."""
        starts, run_us_of = self.starts_of(dropped.path), self.traits.run_us_of
        if starts.birth == NO_BIRTH or run_us_of(dropped.condition) is None:
            return
        others = (name for name in self.stores if name.path == dropped.path)
        if all(run_us_of(name.condition) is None for name in others):
            starts.clear()

    def table(self, path: Path) -> ColumnTable:
        """Return the key table of a path, a new one if there is none."""
        if path not in self.tables:
            # Calling `ColumnTable`, a generic alias, takes a microsecond more.
            self.tables[path] = KeyTable(path, self)
        return self.tables[path]

    def become_indexed(self, tick: int) -> None:
        """Have rules indexed after event `tick`, up to which all memories are complete."""
        assert not self.indexed, "rules are not indexed yet"
        self.indexed = True
        for name, store in self.stores.items():
            self.mark_complete(store, tick)
            self._set_regime(name, store)

    def cease_indexed(self) -> None:
        """Undo `become_indexed`, when all memories are complete and none is shared by births."""
        self.globals.regimes.clear()
        self.globals.starts.clear()
        for table in self.tables.values():
            table.slice_test = None
            table.starts.clear()
        self.views.clear()
        self._shared.clear()
        self.indexed = False

    def mark_complete(self, store: Store, tick: int) -> None:
        """Mark a memory as complete up to an event."""
        if isinstance(store, int):
            self.globals.ticks[store] = tick
        else:
            store.complete_at = tick

    def _set_regime(self, name: NodeName, store: Store) -> None:
        regime = self.traits.regime_of(name.condition)
        if self.traits.sharing_of(name.condition) is not Sharing.NEVER:
            self._shared.add(name[:2], name)
            self.views[name] = View(store, NEVER)
        if isinstance(store, int):
            self.globals.regimes[store] = regime
            return
        store.regime = regime
        if regime in (Regime.STAMPED, Regime.BEGUN):
            store.table.add_clock(store)

    def regime(self, store: Store) -> Regime:
        """Return the regime of a memory, once rules are indexed."""
        return self.globals.regimes[store] if isinstance(store, int) else store.regime

    def settle(self, now_us: int, tick: int) -> Evicted:
        """Expire keys after event `tick` if due, hold the bounds, and count the evicted keys."""
        if not tick % SETTLE_EVERY:
            full = self.live > self.swept_from
            for table in self.tables.values():
                if full or bloated(table):
                    expire_some(table, now_us, tick // SETTLE_EVERY)
        self.due = False
        return self.eviction.hold(now_us)


def _begin_after(column: Column, time_us: int, tick: int) -> None:
    """Have runs that started up to a time start after it. The time is not after that of event `tick`."""
    table = column.table
    slots = [slot for slot, taken in enumerate(table.free_slots.taken) if taken]
    older = [slot for slot in slots if NEVER < column.past_us(slot) <= time_us]
    column.drop_until(time_us, tick)
    for slot in older:
        if (start_us := table.starts.after(slot, time_us)) != FOREVER:
            column.begin(slot, start_us)
