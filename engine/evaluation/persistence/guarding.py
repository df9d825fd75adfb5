"""Guards keep what slices were when they were captured, while events go on and a thread packs them.

A capture puts a guard in place of each shard. An event reaches a slice through the guard, which first keeps a
copy for the capture. The packing thread has the other slices copied. Whoever is first wins: the event's copy
comes before its change, and a copy that the thread makes later is discarded. So neither waits for the other.
"""

from collections.abc import Hashable, Iterator, MutableMapping
from typing import Any
from weakref import ref

from engine.evaluation.slices.slices import FIRST, MORE, Slice, Slices


class Kept(dict[Hashable, Slice | None]):
    """Copies of slices of one shard as they were when it was captured; None for keys that came later.

    The guard keeps copies for as long as somebody holds this.
    """

    __slots__ = ("__weakref__",)


class Guard(MutableMapping[Hashable, Slice]):
    """Stands in place of one shard. It gives way at its first use after the last capture has ended.

    Only the evaluating thread uses it as a mapping.
    """

    __slots__ = ("_captures", "_number", "_shard", "_shards")

    def __init__(self, slices: Slices, number: int) -> None:
        self._shards, self._number = slices.shards, number
        self._shard = slices.shards[number]
        self._captures: tuple[ref[Kept], ...] = ()

    def begin(self) -> Kept:
        """Keep slices as they are now, from now on."""
        kept = Kept()
        self._captures = (*self._captures, ref(kept))
        return kept

    def complete(self, kept: Kept) -> Iterator[None]:
        """Keep every slice of a capture, one at a time. The packing thread calls this."""
        # A dict is listed in one step.
        for key in list(self._shard.keys()):
            if key not in kept:
                slice_ = self._shard.get(key)
                # If its key has been dropped meanwhile, the slice was kept before.
                if slice_ is not None:
                    kept.setdefault(key, copy_of(slice_))
            yield

    def _keep(self, key: Hashable, slice_: Slice | None) -> None:
        going_on = True
        for capture in self._captures:
            kept = capture()
            if kept is None:
                going_on = False
            elif key not in kept:
                kept.setdefault(key, None if slice_ is None else copy_of(slice_))
        if not going_on:
            self._captures = tuple([capture for capture in self._captures if capture() is not None])
            if not self._captures:
                self._shards[self._number] = self._shard

    # -- as a dict ------------------------------------------------------------------------------------------

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return a slice, or else the default."""
        slice_ = self._shard.get(key)
        if slice_ is None:
            return default
        self._keep(key, slice_)
        return slice_

    def __getitem__(self, key: Hashable) -> Slice:
        slice_ = self._shard[key]
        self._keep(key, slice_)
        return slice_

    def __setitem__(self, key: Hashable, slice_: Slice) -> None:
        self._keep(key, self._shard.get(key))
        self._shard[key] = slice_

    def __delitem__(self, key: Hashable) -> None:
        self._keep(key, self._shard[key])
        del self._shard[key]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._shard)

    def __len__(self) -> int:
        return len(self._shard)


def guard(slices: Slices) -> list[tuple[Guard, Kept]]:
    """Put guards in place of the shards that have slices, and return what they keep from now on."""
    guards = []
    for number, shard in enumerate(slices.shards):
        if shard:
            if not isinstance(shard, Guard):
                shard = slices.shards[number] = Guard(slices, number)  # noqa: PLW2901 -- in its place
            guards.append((shard, shard.begin()))
    return guards


def copy_of(slice_: Slice) -> Slice:
    """Return a copy that shares nothing that changes."""
    copied = slice_[:]
    for place in range(FIRST, len(copied)):
        copied[place] = _copy_of_entry(copied[place])
    if copied[MORE] is not None:
        copied[MORE] = {place: _copy_of_entry(entry) for place, entry in copied[MORE].copy().items()}
    return copied


def _copy_of_entry(entry: Any) -> Any:
    """Return a copy of an entry: a record, if it is not a stamp or empty."""
    return entry.copy() if entry and type(entry) is not int else entry
