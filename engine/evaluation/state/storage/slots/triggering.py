"""The memories whose buckets the next event meets.

Where rules count, most slices hold most memories, and collecting what hundreds of buckets select takes longer
than evaluating it. So buckets that several events in a row have met are united, until one of them changes or
is met no longer.
"""

from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from engine.evaluation.memory import Bucket

UNITED_FROM: Final = 8
"""The fewest buckets that are united."""

CALM_EVENTS: Final = 3
"""How many events must have met the same buckets before these are united. Uniting them takes about as long as
an event that meets them one by one."""

LATER_SHARE: Final = 1.2
"""Buckets are united anew when their number has grown by this factor."""

DENSE_SHARE: Final = 0.6
"""If this share of a table's events meets the bucket of a memory, all events of its slices do. Asking at each
event would take longer than evaluating some members in vain."""

COUNTED_EVERY: Final = 256
"""After this many events, it is counted anew which memories are dense."""

COUNTED_FOR: Final = 16
"""The number of events at which that is counted."""


class _Columns(list[Any]):
    __slots__ = ("events", "union")

    def __init__(self) -> None:
        self.disturb()

    def disturb(self) -> None:
        """Drop the union, as a bucket has changed or is met no longer."""
        self.events = 0
        """How many events met the same buckets; in `WatchedColumns`, how many remain until the next count."""
        self.union: Bucket | None = None
        """The members of several buckets as one, or None."""


class TriggeringColumns(_Columns):
    """The columns whose buckets the next event of a slice meets."""

    __slots__ = ("_united",)

    _united: int
    """How many columns, from the first on, are in the union if there is one."""

    def meet(self) -> Collection[Bucket]:
        """Have an event meet the buckets. Return them, or the union of most of them and then the others."""
        if self.union is not None and len(self) <= LATER_SHARE * self._united:
            return (self.union, *[column.bucket for column in self[self._united :]])
        self._united = len(self)
        return _count_and_unite(self, [column.bucket for column in self])

    def remove(self, column: Any) -> None:
        """Remove a column."""
        place = self.index(column)
        del self[place]
        if self.union is None or place < self._united:
            self.disturb()


class WatchedColumns(_Columns):
    """The paged columns with a bucket for some slots."""

    __slots__ = ("_asked", "_counts", "_united")

    _asked: list[Any]
    """The columns that are not in the union."""
    _united: list[Any]
    """Those that are."""
    _counts: Counter[Any]
    """By column, at how many of the events since counting began its bucket was met."""

    def disturb(self) -> None:
        """Drop the union."""
        super().disturb()
        self._asked, self._united = self, []

    def append(self, column: Any) -> None:
        """Add a column."""
        super().append(column)
        self.disturb()

    def remove(self, column: Any) -> None:
        """Remove a column."""
        super().remove(column)
        self.disturb()

    def meet_at(self, slot: int) -> list[Bucket]:
        """Have an event of a slot meet the buckets. Return them, with one for all columns that are dense."""
        if not self.events:
            self.events, self._counts = COUNTED_EVERY, Counter()
        self.events -= 1
        counted = COUNTED_EVERY - self.events
        if counted <= COUNTED_FOR:
            self._counts.update(column for column in self if column.triggers_at(slot))
            if counted == COUNTED_FOR:
                self._unite()
        met = [column.bucket for column in self._asked if column.triggers_at(slot)]
        return met if self.union is None else [*met, self.union]

    def _unite(self) -> None:
        """Unite the columns that are dense."""
        dense = [column for column in self if self._counts[column] >= DENSE_SHARE * COUNTED_FOR]
        if dense == self._united:
            return
        self.union, self._asked, self._united = None, self, []
        if len(dense) >= UNITED_FROM:
            self.union = dense[0].bucket.unite([column.bucket for column in dense], self)
        if self.union is not None:
            united = set(dense)
            self._asked, self._united = [column for column in self if column not in united], dense


class TriggeringStores(dict[Any, Bucket]):
    """The buckets that the next event meets because of memories without keys, by memory."""

    __slots__ = ("events", "union")

    def disturb(self) -> None:
        """Drop the union, as a bucket has changed or others are met."""
        self.events = 0
        self.union: Bucket | None = None

    def meet(self) -> Collection[Bucket]:
        """Have an event meet the buckets. Return them, or one that has all their members."""
        return (self.union,) if self.union is not None else _count_and_unite(self, self.values())

    def start(self, store: Any, bucket: Bucket) -> None:
        """Have the next events meet the bucket of a memory."""
        self[store] = bucket
        self.disturb()

    def stop(self, store: Any) -> None:
        """Undo `start`, if the memory triggers."""
        if self.pop(store, None) is not None:
            self.disturb()


def _count_and_unite(
    triggering: TriggeringColumns | TriggeringStores, buckets: Collection[Bucket]
) -> Collection[Bucket]:
    """Count an event that meets these buckets. Return them, or their union if enough events have met them."""
    if len(buckets) < UNITED_FROM:
        return buckets
    if triggering.events < CALM_EVENTS:
        triggering.events += 1
        return buckets
    triggering.union = next(iter(buckets)).unite(buckets, triggering)
    if triggering.union is None:
        triggering.events = 0
        return buckets
    return (triggering.union,)
