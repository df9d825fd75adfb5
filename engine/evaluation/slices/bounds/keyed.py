"""What is bounded: the slices of a path with keys, or entries that are like them."""

from collections.abc import Hashable, MutableMapping
from typing import Protocol

from engine.evaluation.paths import Path
from engine.evaluation.slices.slices import Slice


class Keyed(Protocol):
    """Slices by key, in shards."""

    @property
    def path(self) -> Path:
        """What tells these slices from others."""

    shards: list[MutableMapping[Hashable, Slice]]
    """A key is in that of its hash, modulo their number."""
    touched: list[Hashable]
    """The keys of the last events, while a bound is near."""

    def find(self, key: Hashable) -> Slice | None:
        """Return the slice of a key, if there is one."""

    def drop(self, key: Hashable) -> None:
        """Drop a slice. If its key comes again, it begins anew."""

    def last_seen(self, slice_: Slice) -> int:
        """Return the order of the last event of a slice among those of all."""

    def first_until_us(self, slice_: Slice) -> int:
        """Return the last time at which nothing has to be dropped: no entry on its own, nor the slice."""

    def drop_expired(self, slice_: Slice, now_us: int) -> bool:
        """Drop the entries that cannot matter any more, and tell whether none remains."""
