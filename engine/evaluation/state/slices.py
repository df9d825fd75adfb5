"""What a detector remembers: a memory for each temporal node, unkeyed or by key, and the bound on live keys.

A memory is named by meaning: the node's condition, the path of keys around it, and its birth. Rules that were
born together share it; nothing in the name depends on how a rule was compiled.
"""

from bisect import bisect_left, insort
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.evaluation.requirements import can_be_shared
from engine.evaluation.state.columns import Column
from engine.evaluation.state.eviction import Evicted, Eviction
from engine.evaluation.state.expiry import has_expired
from engine.evaluation.state.tables import KeyTable
from engine.evaluation.state.tidying import bloated, tidy
from engine.evaluation.state.views import View
from engine.evaluation.temporal import NEVER, Regime
from engine.evaluation.triggers import regime_of
from engine.language.condition import Condition

if TYPE_CHECKING:
    from engine.evaluation.buckets import Bucket

SWEPT_FROM: Final = 1 << 14
"""Up to so many live keys, what has expired is left where it is: keys that come back find their slots."""

_birth: Final = attrgetter("birth")

SETTLE_EVERY: Final = 32
"""After so many events a detector tidies up, if it has to."""


class NodeName(NamedTuple):
    """What a memory is called: equal for two nodes exactly when they remember the same for ever."""

    condition: Condition
    path: tuple[str, ...]
    birth: int
    """How many events the detector had seen when the rule's history began."""


class Whole:
    """The memories of unkeyed nodes: a cell for each, by number."""

    __slots__ = ("awake", "blank", "buckets", "cells", "free", "previous_us", "regimes", "ticks")

    def __init__(self) -> None:
        self.cells: list[int] = []
        self.ticks: list[int] = []
        """For each cell, the event up to which it says all; later ones of a stamped node may not be in it."""
        self.free: list[int] = []
        self.previous_us = 0
        """The time of the event before this one."""
        self.regimes: dict[int, Regime] = {}
        """How each cell fares, once rules sleep."""
        self.buckets: dict[int, Bucket] = {}
        """By cell, the rules that must see every event while it holds something, or of some while it does
        not."""
        self.blank: set[int] = set()
        """The latter."""
        self.awake: dict[int, Bucket] = {}
        """Those that must see the next event."""

    def new_cell(self, tick: int) -> int:
        """Give the number of a cell that holds nothing."""
        if self.free:
            cell = self.free.pop()
            self.ticks[cell] = tick
            return cell
        self.cells.append(NEVER)
        self.ticks.append(tick)
        return len(self.cells) - 1

    def drop(self, cell: int) -> None:
        """Give a cell back."""
        self.cells[cell] = NEVER
        self.free.append(cell)

    def watch(self, cell: int, bucket: "Bucket", *, blank: bool) -> None:
        """Have rules see every event while a cell holds something, or while it does not."""
        self.buckets[cell] = bucket
        if blank:
            self.blank.add(cell)
        if (self.cells[cell] == NEVER) is blank:
            self.awake[cell] = bucket

    def unwatch(self, cell: int) -> None:
        """Undo `watch`."""
        del self.buckets[cell]
        self.blank.discard(cell)
        self.awake.pop(cell, None)

    def restore(self, cell: int, time_us: int) -> None:
        """Take what a cell held before."""
        if time_us != NEVER:
            (self.begin if cell in self.blank else self.open)(cell, time_us)

    def open(self, cell: int, now_us: int) -> None:
        """Begin to remember something."""
        self.cells[cell] = now_us
        if cell in self.buckets:
            self.awake[cell] = self.buckets[cell]

    def close(self, cell: int) -> None:
        """Forget what is remembered."""
        self.cells[cell] = NEVER
        self.awake.pop(cell, None)

    def begin(self, cell: int, now_us: int) -> None:
        """Begin to remember something that is awaited while it is not there."""
        self.cells[cell] = now_us
        self.awake.pop(cell, None)

    def end(self, cell: int) -> None:
        """Undo `begin`."""
        self.cells[cell] = NEVER
        if cell in self.buckets:
            self.awake[cell] = self.buckets[cell]


class Joined(NamedTuple):
    """What rules read whose memory is that of rules of the same node that were born earlier."""

    name: NodeName
    since_us: int
    """The memory counts for them where it holds a later time."""


Store = int | Column
"""The memory of one node: a Column inside of keys, the number of a cell outside."""


class State:
    """All that a detector remembers of its past, by the names of the nodes that remember it."""

    __slots__ = (
        "_shared",
        "bytes",
        "bytes_max",
        "due",
        "eviction",
        "indexed",
        "joined",
        "live",
        "live_max",
        "stores",
        "swept_from",
        "tables",
        "tracking",
        "users",
        "views",
        "whole",
    )

    def __init__(self, live_max: int, bytes_max: int) -> None:
        self.live_max, self.bytes_max = live_max, bytes_max
        self.swept_from = SWEPT_FROM
        self.indexed = False
        """Whether rules sleep; until then every memory is written by every event."""
        self.whole = Whole()
        self.stores: dict[NodeName, Store] = {}
        self.users: dict[NodeName, int] = {}
        """By name, the rules that have it, and the names that have joined it."""
        self.joined: dict[NodeName, Joined] = {}
        """Names without a memory of their own."""
        self.views: dict[NodeName, View] = {}
        """What rules read, once they sleep, of nodes whose memory can be shared."""
        self._shared: dict[tuple[Condition, tuple[str, ...]], list[NodeName]] = {}
        """By node and path, the names of memories that rules of later births may share, in order of birth."""
        self.tables: dict[tuple[str, ...], KeyTable] = {}
        self.live = 0
        """How many keys hold something, over all paths; an expired one counts until it is swept."""
        self.bytes = 0
        """What these keys and all that is remembered for them weigh, as `sizes` has it."""
        self.due = False
        """Whether a bound is passed, so that `settle` is wanted with this event."""
        self.tracking = False
        """Whether the tables log which slots events touch."""
        self.eviction = Eviction(self)

    def acquire(self, name: NodeName, expires_after_us: int | None, tick: int) -> Store:
        """Give the memory of that name, a new one where there is none."""
        if name in self.joined:
            self.users[name] += 1
            return self.store_of(name)
        store = self.stores.get(name)
        if store is None:
            if name.path:
                store = Column(self.table(name.path), expires_after_us, tick)
                store.table.columns.append(store)
            else:
                store = self.whole.new_cell(tick)
            self.stores[name] = store
            self.users[name] = 0
            if self.indexed:
                self._let_sleep(name, store)
        self.users[name] += 1
        return store

    def store_of(self, name: NodeName) -> Store:
        """Give the memory that is read under a name."""
        joined = self.joined.get(name)
        return self.stores[joined.name if joined else name]

    def oldest(self, name: NodeName) -> NodeName | None:
        """Give the name of the oldest memory of the same node, None where it cannot be shared."""
        shared = self._shared.get(name[:2])
        return shared[0] if shared else None

    def join(self, name: NodeName, since_us: int, now_us: int) -> None:
        """Have a name read the oldest memory of its node, as far as that is later than `since_us`.

        Only where that cannot be told from the memory of that name, which is dropped.
        """
        oldest = self.oldest(name)
        assert oldest is not None, name
        assert oldest != name, name
        self.users[oldest] += 1
        # No key is given back: the other memory has held what this one holds.
        self._drop(name, now_us, keys=False)
        self._set_joined(name, Joined(oldest, since_us), self.views[name])

    def restore_joined(self, name: NodeName, joined: Joined, expires_after_us: int | None) -> None:
        """Take a name that had joined another, whose memory may not be there yet."""
        store = self.acquire(joined.name, expires_after_us, 0)
        self._set_joined(name, joined, View(store, joined.since_us))
        self.users[name] = 0

    def _set_joined(self, name: NodeName, joined: Joined, view: View) -> None:
        view.store, view.since_us = self.stores[joined.name], joined.since_us
        self.joined[name], self.views[name] = joined, view

    def release(self, name: NodeName, now_us: int) -> None:
        """Give a memory back; the last one to do so drops it, and the keys that only it held."""
        self.users[name] -= 1
        if self.users[name]:
            return
        del self.users[name]
        self.views.pop(name, None)
        if name in self.joined:
            self.release(self.joined.pop(name).name, now_us)
        else:
            self._drop(name, now_us, keys=True)

    def _drop(self, name: NodeName, now_us: int, *, keys: bool) -> None:
        """Drop a memory and, if so asked, the keys that only it held."""
        store = self.stores.pop(name)
        shared = self._shared.get(name[:2])
        if shared:
            del shared[bisect_left(shared, name.birth, key=_birth)]
            if not shared:
                del self._shared[name[:2]]
        if isinstance(store, int):
            self.whole.drop(store)
            return
        table = store.table
        table.columns.remove(store)
        slots = range(len(table.keys)) if store.clocked else store.slots()
        if store.clocked:
            table.remove_clock(store)
        store.drop_all()
        if keys:
            for slot in slots:
                if table.taken[slot] and not table.held[slot] and has_expired(table, slot, now_us):
                    table.free(slot)
        if not table.columns:
            for slot in range(len(table.keys)):
                if table.taken[slot]:
                    table.free(slot)
            del self.tables[name.path]
        self.eviction.renew()

    def table(self, path: tuple[str, ...]) -> KeyTable:
        """Give the keys of a path, an empty table where there is none."""
        if path not in self.tables:
            self.tables[path] = KeyTable(path, self)
        return self.tables[path]

    def begin_to_sleep(self, tick: int) -> None:
        """From event `tick` on rules sleep: what the memories hold says all up to here."""
        assert not self.indexed, "rules begin to sleep once"
        self.indexed = True
        for name, store in self.stores.items():
            self.is_whole(store, tick)
            self._let_sleep(name, store)

    def is_whole(self, store: Store, tick: int) -> None:
        """Take note that a memory says all up to an event."""
        if isinstance(store, Column):
            store.whole_at = tick
        else:
            self.whole.ticks[store] = tick

    def _let_sleep(self, name: NodeName, store: Store) -> None:
        regime = regime_of(name.condition)
        if can_be_shared(name.condition):
            insort(self._shared.setdefault(name[:2], []), name, key=_birth)
            self.views[name] = View(store, NEVER)
        if not isinstance(store, Column):
            self.whole.regimes[store] = regime
            return
        store.regime = regime
        if regime in (Regime.STAMPED, Regime.BEGUN):
            store.table.add_clock(store)

    def regime(self, store: Store) -> Regime:
        """Give how a memory fares, once rules sleep."""
        return store.regime if isinstance(store, Column) else self.whole.regimes[store]

    def settle(self, now_us: int, tick: int) -> Evicted:
        """Tidy up after event `tick` if it is time, hold the bounds, and give how many keys were evicted."""
        if not tick % SETTLE_EVERY:
            full = self.live > self.swept_from
            for table in self.tables.values():
                if full or bloated(table):
                    tidy(table, now_us, tick // SETTLE_EVERY)
        self.due = False
        return self.eviction.hold(now_us)
