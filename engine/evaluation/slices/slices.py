"""The slices of a history under one path of keys: what each remembers of its events.

A slice is a list: the number of its last event, a dict of entries that have no place in the list (or None), and then
the entries by place. It exists only while it remembers something.
"""

from collections.abc import Hashable, Iterator
from typing import Any, Final

from engine.evaluation.operators.interface import Memory
from engine.evaluation.paths import Path
from engine.evaluation.slices.remembered import Remembered

Slice = list[Any]

SEEN: Final = 0
MORE: Final = 1
FIRST: Final = 2

SHARDS: Final = 256
"""A dict that grows is copied in one piece, so the slices of a path are in many."""

PLACES_MAX: Final = 16
"""Further memories have no place in the lists: of thousands of memories, a slice has entries of only a few."""

EXTENDED_MAX: Final = 10_000
"""With more slices, a new memory gets no place either, so that adding a rule takes no longer."""


class Slices:
    """The slices of one path. That without keys has one slice, the `root`, which always exists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shards: list[dict[Hashable, Slice]] = [{} for _ in range(SHARDS)]
        self.blank: Slice = [0, {}]
        """What a key without a slice reads. Only the number of its last event is ever written, and never read."""
        self.memories: dict[int, Remembered] = {}
        """By place."""
        self.live = 0
        """How many slices there are."""
        self.root = self.blank[:]

    def remember(self, memory: Memory) -> Remembered:
        """Have the slices remember one more thing, from now on."""
        place = FIRST
        while place in self.memories:
            place += 1
        has_place = place < PLACES_MAX and self.live <= EXTENDED_MAX
        if not has_place:
            place = max([PLACES_MAX - 1, *self.memories]) + 1
        remembered = self.memories[place] = Remembered(memory, self, place, has_place=has_place)
        if has_place:
            for slice_ in self._all():
                slice_ += [None] * (place + 1 - len(slice_))
                slice_[place] = remembered.blank
        return remembered

    def forget(self, remembered: Remembered) -> None:
        """Undo `remember`."""
        del self.memories[remembered.place]
        if not remembered.has_place:
            for slice_ in self._all():
                if slice_[MORE]:
                    slice_[MORE].pop(remembered.place, None)

    def admit(self, key: Hashable) -> Slice:
        """Return a new slice, which remembers nothing yet, for a key that has none."""
        slice_ = self.shards[hash(key) % SHARDS][key] = self.blank[:]
        slice_[MORE] = None
        self.live += 1
        return slice_

    def _all(self) -> Iterator[Slice]:
        yield self.blank
        yield self.root
        for shard in self.shards:
            yield from shard.values()
