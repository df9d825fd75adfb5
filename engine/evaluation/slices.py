"""What a detector remembers: a memory for each temporal node, unkeyed or by key, and the bound on live keys.

A memory is named by meaning: the node's condition, the path of keys around it, and its birth. Rules that were
born together share it; nothing in the name depends on how a rule was compiled.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.evaluation.access import regime_of
from engine.evaluation.columns import Column
from engine.evaluation.tables import KeyTable
from engine.evaluation.temporal import NEVER, Regime
from engine.evaluation.tidying import BLOCK_SLOTS, bloated, forget, free_idle, next_block, tidy
from engine.language.condition import Condition

if TYPE_CHECKING:
    from engine.evaluation.buckets import Bucket

SWEPT_FROM: Final = 1 << 14
"""Up to so many live keys, what has expired is left where it is: keys that come back find their slots."""

SETTLE_EVERY: Final = 32
"""After so many events a detector looks whether it has to tidy up."""

IDLE_ROUNDS: Final = 8
"""While there is little to tidy up, it does so at every so-manieth look."""

_SCANNED_ALWAYS: Final = 4096
"""Up to so many live keys, all are scanned before each eviction; so what has expired always goes first."""

_DOOMED_SHARE: Final = 64
"""Of more keys, one scan finds the next 1/64 of a block of slots to evict, so that a scan stays rare."""


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


Store = int | Column
"""The memory of one node: a Column inside of keys, the number of a cell outside."""


class State:
    """All that a detector remembers of its past, by the names of the nodes that remember it."""

    __slots__ = (
        "busy",
        "doomed",
        "due",
        "indexed",
        "keys_max",
        "live",
        "rounds",
        "stores",
        "swept_from",
        "tables",
        "users",
        "whole",
    )

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self.swept_from = SWEPT_FROM
        self.indexed = False
        """Whether rules sleep; until then every memory is written by every event."""
        self.whole = Whole()
        self.stores: dict[NodeName, Store] = {}
        self.users: dict[NodeName, int] = {}
        self.tables: dict[tuple[str, ...], KeyTable] = {}
        self.live = 0
        """How many keys hold something, over all paths; an expired one counts until it is swept."""
        self.due = False
        """Whether `settle` is wanted with the next event."""
        self.busy = False
        """Whether there was much to tidy up when that was last done."""
        self.rounds = 0
        """How often it has not been done since."""
        self.doomed: deque[tuple[int, KeyTable, int]] = deque()
        """The next slots to evict, longest unseen first; stale where the key has been seen since."""

    def acquire(self, name: NodeName, expires_after_us: int | None, tick: int) -> Store:
        """Give the memory of that name, a new one where there is none."""
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

    def release(self, name: NodeName, now_us: int) -> None:
        """Give a memory back; the last one to do so drops it, and the keys that only it held."""
        self.users[name] -= 1
        if self.users[name]:
            return
        store = self.stores.pop(name)
        del self.users[name]
        if isinstance(store, int):
            self.whole.drop(store)
            return
        table = store.table
        table.columns.remove(store)
        table.let_go(store.slots())
        if store in table.stamped:
            table.remove_clock(store)
        free_idle(table, now_us)
        if not table.columns:
            assert not table.live, "a key lives by what is remembered for it"
            del self.tables[name.path]
            self.doomed = deque(row for row in self.doomed if row[1] is not table)

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
        if not isinstance(store, Column):
            self.whole.regimes[store] = regime
            return
        store.regime = regime
        if regime in (Regime.STAMPED, Regime.BEGUN):
            store.table.add_clock(store)

    def regime(self, store: Store) -> Regime:
        """Give how a memory fares, once rules sleep."""
        return store.regime if isinstance(store, Column) else self.whole.regimes[store]

    def settle(self, now_us: int) -> int:
        """Tidy up, hold the bound on live keys, and give the number of keys evicted."""
        self.rounds += 1
        if self.due or self.busy or self.rounds >= IDLE_ROUNDS:
            self.rounds = 0
            full = self.live > self.swept_from
            much = [
                tidy(table, now_us)
                for table in self.tables.values()
                if bloated(table) or (full and table.live)
            ]
            self.busy = any(much)
        self.due = False
        evicted = 0
        if self.keys_max < self.live <= _SCANNED_ALWAYS:
            self.doomed.clear()
        while (excess := self.live - self.keys_max) > 0:
            if not self.doomed:
                self._scan(now_us, excess)
                continue
            tick, table, slot = self.doomed.popleft()
            if table.unseen_since(slot, tick):
                forget(table, slot)
                evicted += 1
        return evicted

    def _scan(self, now_us: int, excess: int) -> None:
        """Drop what has expired in a block of each table, and find the longest unseen of what is left."""
        tables = list(self.tables.values())
        few = self.live <= _SCANNED_ALWAYS
        rows = [
            (table.seen[slot], place, slot)
            for place, table in enumerate(tables)
            for _ in range(-(-len(table.keys) // BLOCK_SLOTS) if few else 1)
            for slot in next_block(table, now_us)
        ]
        rows.sort()
        self.doomed.extend(
            (tick, tables[place], slot) for tick, place, slot in rows[: excess + len(rows) // _DOOMED_SHARE]
        )
