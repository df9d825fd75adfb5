"""The table of what waits for its time: an entry for each live slice of a rule."""

from collections.abc import Hashable, Iterator
from typing import Final

from engine.evaluation.slices.slices import SHARDS
from engine.evaluation.stamps import LATEST

Entry = tuple[int, int, int, Hashable]
"""When time may turn the verdict next, as the stamp before all events of that time; the rule's priority; the
number of the slice's first event; its key. Entries are in the order in which rules fire."""

NO_SOONEST: Final = LATEST << 1
"""As a difference of stamps: no time that an entry may have is this long after an event."""

NOT_WAITING: Final = (LATEST << 2,)
"""In place of the entry of a key that has none: it is after any event by more than that."""

_EMPTY: Final[dict[Hashable, Entry]] = {}


class Table:
    """Entries by key. A capture shares its shards, each until it is changed."""

    def __init__(self) -> None:
        self.shards: list[dict[Hashable, Entry]] = [_EMPTY] * SHARDS
        """Generated code reads them. The list stays the same."""
        self.shared = bytearray(b"\1" * SHARDS)
        """By number, whether a capture has a shard, too. It stays the same, and generated code reads it."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry]:
        for shard in self.shards:
            yield from shard.values()

    def get(self, key: Hashable) -> Entry | None:
        """Return the entry of a key, if it has one."""
        return self.shards[hash(key) % SHARDS].get(key)

    def put(self, entry: Entry) -> None:
        """Add the entry of a key, or replace it."""
        number = hash(entry[3]) % SHARDS
        shard = self.own(number) if self.shared[number] else self.shards[number]
        before = len(shard)
        shard[entry[3]] = entry
        self._size += len(shard) - before

    def remove(self, key: Hashable) -> None:
        """Remove the entry of a key that has one."""
        del self.own(hash(key) % SHARDS)[key]
        self._size -= 1

    def captured(self) -> list[dict[Hashable, Entry]]:
        """Return the shards as they are now. Nobody changes them from now on."""
        self.shared[:] = b"\1" * SHARDS
        return self.shards[:]

    def own(self, number: int) -> dict[Hashable, Entry]:
        """Return a shard, which no capture has from now on."""
        if self.shared[number]:
            self.shared[number] = 0
            self.shards[number] = self.shards[number].copy()
        return self.shards[number]
