"""Guards keep what slices were when they were captured, while events go on and a thread packs them.

A capture puts a guard in place of each shard. An event reaches a slice through the guard, which first keeps a
copy for the capture. The packing thread has the other slices copied. Whoever is first wins: the event's copy
comes before its change, and a copy that the thread makes later is discarded. So neither waits for the other.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Protocol
from weakref import ref

from engine.evaluation.slices.slices import MORE, Remembered, Slice


class Guarded(Protocol):
    """What is captured: slices in shards."""

    shards: list[MutableMapping[Hashable, Slice]]

    @property
    def memories(self) -> Mapping[int, Remembered]:
        """What they have places for."""


class Kept(dict[Hashable, Slice | None]):
    """Copies of slices of one shard as they were when it was captured; None for keys that came later.

    The guard keeps copies for as long as somebody holds this.
    """

    __slots__ = ("__weakref__",)


class Guard(MutableMapping[Hashable, Slice]):
    """Stands in place of one shard. It gives way at its first use after the last capture has ended.

    Only the evaluating thread uses it as a mapping.
    """

    __slots__ = ("_captures", "_number", "_records", "_shard", "_shards")

    def __init__(self, slices: Guarded, number: int) -> None:
        self._shards, self._number = slices.shards, number
        self._shard = slices.shards[number]
        self._captures: tuple[ref[Kept], ...] = ()
        self._records: list[int] = []

    def begin(self, records: list[int]) -> Kept:
        """Keep slices as they are now, from now on. They have records in these places.

        Memories that come or go later change all slices, so that copies have been made before.
        """
        kept, self._records = Kept(), records
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
                    kept.setdefault(key, copy_of(slice_, self._records))
            yield

    def _keep(self, key: Hashable, slice_: Slice | None) -> None:
        going_on = True
        for capture in self._captures:
            kept = capture()
            if kept is None:
                going_on = False
            elif key not in kept:
                kept.setdefault(key, None if slice_ is None else copy_of(slice_, self._records))
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


def guard(slices: Guarded) -> list[tuple[Guard, Kept]]:
    """Put guards in place of the shards that have slices, and return what they keep from now on."""
    guards, records = [], records_of(slices)
    for number, shard in enumerate(slices.shards):
        if shard:
            if not isinstance(shard, Guard):
                shard = slices.shards[number] = Guard(slices, number)  # noqa: PLW2901 -- in its place
            guards.append((shard, shard.begin(records)))
    return guards


def copy_of(slice_: Slice, records: Iterable[int]) -> Slice:
    """Return a copy that shares nothing that changes. Its records are in these places, and elsewhere."""
    copied = slice_[:]
    for place in records:
        if copied[place]:
            copied[place] = copied[place].copy()
    if copied[MORE] is not None:
        # A stamp is a number, and a record has a method to copy it.
        more = copied[MORE].copy()
        copied[MORE] = {at: one if type(one) is int else one.copy() for at, one in more.items()}
    return copied


def records_of(slices: Guarded) -> list[int]:
    """Return the places of lists that have records."""
    return [place for place, one in slices.memories.items() if one.has_place and one.memory.is_record]
