"""Replication of a table from its owner to readers: incremental if possible, otherwise whole."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from engine.runtime.contract.catalogue_changes import TableUpdate

K = TypeVar("K")
V = TypeVar("V")

UPDATES_MAX: Final = 4096
"""The number of latest changes stored; a reader that has missed more receives the whole table."""


class TableVersions(Generic[K, V]):
    """The versions and latest changes of a table, for its owner; the table itself is elsewhere."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._latest: deque[tuple[K, V | None]] = deque(maxlen=UPDATES_MAX)

    def note(self, key: K, value: V | None) -> int:
        """Note a change, and return its version."""
        self._latest.append((key, value))
        self.version += 1
        return self.version

    def since(self, seen: int, table: Callable[[], dict[K, V]]) -> TableUpdate[K, V]:
        """Return the update for a reader that has seen a version, which may be stale or 0.

        `table` returns a copy of the whole table.
        """
        missed = self.version - seen
        if not 0 <= missed <= len(self._latest):
            return TableUpdate(self.version, whole=table())
        return TableUpdate(self.version, changes=list(islice(self._latest, len(self._latest) - missed, None)))


class TableCopy(Generic[K, V]):
    """A reader's copy of the table, plus the changes made through this reader since.

    Changes made here are visible at once, and an update of an older version does not undo them. The cost of a
    change or of a page does not depend on the table's size. A removed key is never used again.
    """

    def __init__(self) -> None:
        self.seen = 0
        """The version of the last update."""
        self._received: dict[K, V] = {}
        self._order: list[K] = []
        """The keys received, in order of creation, and some that have been removed since."""
        self._positions: dict[K, int] = {}
        """Where each key received is in the order."""
        self._added: dict[K, tuple[int, V]] = {}
        """Changes made here that are later than the last update: the version and the value."""
        self._removed: dict[K, int] = {}
        self._by_value: dict[V, set[K]] | None = None
        """The keys received, by value; None until they are asked for."""

    def __contains__(self, key: object) -> bool:
        return key in self._received or key in self._added

    def __bool__(self) -> bool:
        return bool(self._received or self._added)

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it does not exist."""
        value = self._received.get(key)
        if value is None and key in self._added:
            return self._added[key][1]
        return value

    def keys_of(self, value: V) -> set[K]:
        """Return the keys that have a value."""
        if self._by_value is None:
            self._by_value = {}
            for key, one in self._received.items():
                self._by_value.setdefault(one, set()).add(key)
        return self._by_value.get(value, set()) | {
            key for key, (_, one) in self._added.items() if one == value
        }

    def entries(self) -> list[tuple[K, V]]:
        """Return all keys and values, in order of creation."""
        return [*self._received.items(), *self._added_entries()]

    def page(self, after: K | None, most: int) -> list[tuple[K, V]] | None:
        """Return a page in order, from the start or after a key; None for an unknown key."""
        if after is not None and after not in self:
            return None
        begin = 0 if after is None else self._positions.get(after, len(self._order)) + 1
        keys = (self._order[position] for position in range(begin, len(self._order)))
        page = [(key, self._received[key]) for key in islice(filter(self._received.__contains__, keys), most)]
        if len(page) < most:
            added = list(self._added_entries())
            skipped = next((number for number, (key, _) in enumerate(added, 1) if key == after), 0)
            page += added[skipped : skipped + most - len(page)]
        return page

    def _added_entries(self) -> Iterator[tuple[K, V]]:
        for key, (_, value) in sorted(self._added.items(), key=lambda entry: entry[1][0]):
            if key not in self._received:
                yield key, value

    def note_added(self, key: K, value: V, version: int) -> None:
        """Note an entry that was added here."""
        if version > self.seen:
            self._added[key] = version, value

    def note_removed(self, key: K, version: int) -> None:
        """Note a key that was removed here; version 0 means that the version is unknown."""
        self._forget(key)
        self._added.pop(key, None)
        if version > self.seen:
            self._removed[key] = version

    def take(self, update: TableUpdate[K, V]) -> None:
        """Apply an update, unless it is older than the last one."""
        if update.version < self.seen:
            return
        if update.whole is not None:
            self._received = {key: value for key, value in update.whole.items() if key not in self._removed}
            self._by_value = None
            self._put_in_order()
        else:
            assert update.version - len(update.changes) <= self.seen, "the owner skips no change"
            # Some may be known from an answer that overtook this one; applying them again changes nothing.
            for key, value in update.changes:
                if value is None:
                    self._forget(key)
                elif key not in self._removed:
                    self._receive(key, value)
        self.seen = update.version
        self._added = {key: entry for key, entry in self._added.items() if entry[0] > self.seen}
        self._removed = {key: version for key, version in self._removed.items() if version > self.seen}

    def _receive(self, key: K, value: V) -> None:
        if key not in self._received:
            self._positions[key] = len(self._order)
            self._order.append(key)
        self._received[key] = value
        if self._by_value is not None:
            self._by_value.setdefault(value, set()).add(key)

    def _forget(self, key: K) -> None:
        value = self._received.pop(key, None)
        if value is not None:
            if self._by_value is not None:
                self._by_value[value].discard(key)
                if not self._by_value[value]:
                    del self._by_value[value]
            del self._positions[key]
            if len(self._order) > 2 * len(self._received):
                self._put_in_order()

    def _put_in_order(self) -> None:
        self._order = list(self._received)
        self._positions = {key: position for position, key in enumerate(self._order)}
