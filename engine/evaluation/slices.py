"""What a detector remembers: a memory for each temporal node, unkeyed or by key, and the bound on live keys.

A memory is named by meaning: the node's condition, the path of keys around it, and its birth. Rules that were
born together share it; nothing in the name depends on how a rule was compiled.
"""

from collections import deque
from typing import Any, Final, NamedTuple

from engine.evaluation.temporal import NEVER
from engine.language.condition import Condition

Key = Any
"""The value of the innermost path's keys: of one key its `key_of`, of several the tuple of them."""

SWEPT_PER_EVENT: Final = 2
"""How many keys of each table are swept with each event: more than one event can add."""

_SCANNED_ALWAYS: Final = 4096
"""Up to so many live keys, all are scanned before each eviction; so what has expired always goes first."""

_RESCAN_SHARE: Final = 64
"""Of more keys, one scan finds the next 1/64 of them to evict, so that a scan stays rare."""


class NodeName(NamedTuple):
    """What a memory is called: equal for two nodes exactly when they remember the same for ever."""

    condition: Condition
    path: tuple[str, ...]
    birth: int
    """How many events the detector had seen when the rule's history began."""


class Memory:
    """The memory of one temporal node: a time in microseconds, or one for each key."""

    __slots__ = ("by_key", "expires_after_us", "name", "single", "users")

    def __init__(self, name: NodeName, expires_after_us: int | None) -> None:
        self.name = name
        self.expires_after_us = expires_after_us
        self.single: list[int] = [NEVER]
        self.by_key: dict[Key, int] = {}
        self.users = 0
        """How many compiled nodes read it; without any it is dropped."""

    def fresh(self, key: Key, now_us: int) -> bool:
        """Tell whether what is remembered for `key` reads, now and ever after, like nothing at all."""
        remembered = self.by_key.get(key)
        if remembered is None:
            return True
        return self.expires_after_us is not None and remembered < now_us - self.expires_after_us


class KeyTable:
    """The live keys of one path, each with the event at which it was last seen."""

    __slots__ = ("cursor", "memories", "path", "ring", "seen")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self.seen: dict[Key, int] = {}
        self.memories: list[Memory] = []
        # The order in which keys are swept. It may hold keys that were evicted, until the cursor meets them.
        self.ring: list[Key] = []
        self.cursor = 0

    def admit(self, key: Key, tick: int) -> None:
        """Make `key` live: some memory is about to hold something for it."""
        self.seen[key] = tick
        self.ring.append(key)

    def forget(self, key: Key) -> None:
        """Drop all that is remembered for `key`; its slice begins anew."""
        del self.seen[key]
        for memory in self.memories:
            memory.by_key.pop(key, None)

    def fresh(self, key: Key, now_us: int) -> bool:
        """Tell whether no memory holds anything for `key` that could still influence a verdict."""
        return all(memory.fresh(key, now_us) for memory in self.memories)

    def sweep(self, now_us: int, count: int) -> None:
        """Look at the next `count` keys of the ring and drop those that are fresh again."""
        for _ in range(min(count, len(self.ring))):
            if self.cursor >= len(self.ring):
                self.cursor = 0
            key = self.ring[self.cursor]
            if key in self.seen:
                if not self.fresh(key, now_us):
                    self.cursor += 1
                    continue
                self.forget(key)
            self.ring[self.cursor] = self.ring[-1]
            self.ring.pop()


class State:
    """All that a detector remembers of its past, by the names of the nodes that remember it."""

    __slots__ = ("doomed", "memories", "tables")

    def __init__(self) -> None:
        self.memories: dict[NodeName, Memory] = {}
        self.tables: dict[tuple[str, ...], KeyTable] = {}
        # The next keys to evict, longest unseen first; stale where a key has been seen since.
        self.doomed: deque[tuple[int, KeyTable, Key]] = deque()

    def acquire(self, name: NodeName, expires_after_us: int | None) -> Memory:
        """Give the memory of that name, a new one where there is none."""
        memory = self.memories.get(name)
        if memory is None:
            memory = self.memories[name] = Memory(name, expires_after_us)
            if name.path:
                self.table(name.path).memories.append(memory)
        memory.users += 1
        return memory

    def release(self, memory: Memory) -> None:
        """Give a memory back; the last one to do so drops it, and the keys that only it held."""
        memory.users -= 1
        if memory.users:
            return
        del self.memories[memory.name]
        if not memory.name.path:
            return
        table = self.tables[memory.name.path]
        table.memories.remove(memory)
        for key in memory.by_key:
            if not any(key in other.by_key for other in table.memories):
                del table.seen[key]
        if not table.memories:
            del self.tables[table.path]

    def table(self, path: tuple[str, ...]) -> KeyTable:
        """Give the keys of a path, an empty table where there is none."""
        if path not in self.tables:
            self.tables[path] = KeyTable(path)
        return self.tables[path]

    @property
    def live_keys(self) -> int:
        """How many keys hold something, over all paths; an expired one counts until it is swept."""
        return sum(len(table.seen) for table in self.tables.values())

    def settle(self, now_us: int, keys_max: int) -> int:
        """After an event: sweep a little, hold the bound on live keys, give the number of keys evicted."""
        for table in self.tables.values():
            if table.ring:
                table.sweep(now_us, SWEPT_PER_EVENT)
        evicted = 0
        if keys_max < self.live_keys <= _SCANNED_ALWAYS:
            self.doomed.clear()
        while (excess := self.live_keys - keys_max) > 0:
            if not self.doomed:
                self._scan(now_us, excess)
                continue
            tick, table, key = self.doomed.popleft()
            if table.seen.get(key) == tick:
                evicted += not table.fresh(key, now_us)
                table.forget(key)
        return evicted

    def _scan(self, now_us: int, excess: int) -> None:
        """Drop every expired key, and find the longest unseen of what is left, should that not be enough."""
        for table in self.tables.values():
            for key in [key for key in table.seen if table.fresh(key, now_us)]:
                table.forget(key)
            table.ring = list(dict.fromkeys(key for key in table.ring if key in table.seen))
            table.cursor = 0
        rows = [(tick, table, key) for table in self.tables.values() for key, tick in table.seen.items()]
        rows.sort(key=lambda row: row[0])
        self.doomed.extend(rows[: excess + len(rows) // _RESCAN_SHARE])
