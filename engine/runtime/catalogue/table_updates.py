"""A table that one process owns and others copy: what is new in it, in increments where possible."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from engine.runtime.contract.catalogue_changes import TableUpdate

K = TypeVar("K")

UPDATES_MAX: Final = 4096
"""So many changes are told one by one; who has missed more is told the whole table."""


class TableVersions(Generic[K]):
    """The versions of a table, for its owner: one for each change. The table itself is the owner's."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._latest: deque[tuple[K, str | None]] = deque(maxlen=UPDATES_MAX)

    def note(self, key: K, value: str | None) -> int:
        """Take note of a change; the version that it makes."""
        self._latest.append((key, value))
        self.version += 1
        return self.version

    def since(self, seen: int, table: Callable[[], dict[K, str]]) -> TableUpdate[K]:
        """Give what is new for a reader who has seen a version, which may be of another time or 0.

        `table` gives all of it, for the reader to keep.
        """
        missed = self.version - seen
        if not 0 <= missed <= len(self._latest):
            return TableUpdate(self.version, whole=table())
        return TableUpdate(self.version, changes=list(islice(self._latest, len(self._latest) - missed, None)))


class TableCopy(Generic[K]):
    """A table as its owner last told it, with the changes that were made from here since.

    A change made from here shows at once, and what the owner says of an earlier version does not undo it.
    No change costs more where the table is larger. Keys are never used again once they are gone.
    """

    def __init__(self) -> None:
        self.seen = 0
        """The version that the owner told."""
        self._told: dict[K, str] = {}
        self._added: dict[K, tuple[int, str]] = {}
        """Changes from here that are later than what was seen: the version, and the value."""
        self._removed: dict[K, int] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._told or key in self._added

    def __bool__(self) -> bool:
        return bool(self._told or self._added)

    def get(self, key: K) -> str | None:
        """Give the value of a key, None where it is not there."""
        value = self._told.get(key)
        if value is None and key in self._added:
            return self._added[key][1]
        return value

    def entries(self) -> list[tuple[K, str]]:
        """Give all keys and values, in order of creation."""
        return [*self._told.items(), *self._added_entries()]

    def page(self, after: K | None, most: int) -> list[tuple[K, str]] | None:
        """Give some entries in order, from the first or from the one after a key; None for an unknown key."""
        added = dict(self._added_entries())
        keys = [*self._told, *added]
        try:
            begin = 0 if after is None else keys.index(after) + 1
        except ValueError:
            return None
        return [(key, self._told.get(key) or added[key]) for key in keys[begin : begin + most]]

    def _added_entries(self) -> Iterator[tuple[K, str]]:
        for key, (_, value) in sorted(self._added.items(), key=lambda entry: entry[1][0]):
            if key not in self._told:
                yield key, value

    def note_added(self, key: K, value: str, version: int) -> None:
        """Take note of what was added from here."""
        if version > self.seen:
            self._added[key] = version, value

    def note_removed(self, key: K, version: int) -> None:
        """Take note of what was removed from here; a version of 0 is not known."""
        self._told.pop(key, None)
        self._added.pop(key, None)
        if version > self.seen:
            self._removed[key] = version

    def take(self, news: TableUpdate[K]) -> None:
        """Take over what the owner says, unless something later was said before."""
        if news.version < self.seen:
            return
        if news.whole is not None:
            self._told = {key: value for key, value in news.whole.items() if key not in self._removed}
        else:
            assert news.version - len(news.changes) <= self.seen, "the owner leaves nothing out"
            # Some may be known from an answer that overtook this one; to make them all again changes nothing.
            for key, value in news.changes:
                if value is None:
                    self._told.pop(key, None)
                elif key not in self._removed:
                    self._told[key] = value
        self.seen = news.version
        self._added = {key: entry for key, entry in self._added.items() if entry[0] > self.seen}
        self._removed = {key: version for key, version in self._removed.items() if version > self.seen}
