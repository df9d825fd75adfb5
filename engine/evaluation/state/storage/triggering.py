"""The memories whose buckets the next event meets.

Where rules count, most slices hold most memories, and collecting what hundreds of buckets select takes longer
than evaluating it. So buckets that several events in a row have met are united, until one of them changes or
is met no longer.
"""

from collections.abc import Collection
from typing import Any, Final

from engine.evaluation.memory import NEVER, Bucket

UNITED_FROM: Final = 8
"""The fewest buckets that are united."""

CALM_EVENTS: Final = 3
"""How many events must have met the same buckets before they are united, which takes about as long as an
event that meets them one by one."""

LATER_SHARE: Final = 1.2
"""Buckets are united anew when their number has grown by this factor."""

DENSE_SHARE: Final = 0.6
"""If a memory holds a time for this share of the slices, every event of a slice meets its bucket. To ask at
each event whether it holds one would take longer than to evaluate some members in vain."""

COUNTED_EVERY: Final = 256
"""After this many events, it is counted anew which memories are dense."""


class _Columns(list[Any]):
    __slots__ = ("events", "union")

    def __init__(self) -> None:
        self.disturb()

    def disturb(self) -> None:
        """Drop the union, as a bucket has changed or is met no longer."""
        self.events = 0
        """A number of events: see `_met` and `WatchedColumns.met_at`."""
        self.union: Bucket | None = None
        """The members of several buckets as one, or None."""


class TriggeringColumns(_Columns):
    """The columns whose buckets the next event of a slice meets."""

    __slots__ = ("_united",)

    _united: int
    """How many columns, from the first on, are in the union if there is one."""

    def met(self) -> Collection[Bucket]:
        """Return the buckets, or one that has the members of most and then the others."""
        if self.union is not None and len(self) <= LATER_SHARE * self._united:
            return (self.union, *[column.bucket for column in self[self._united :]])
        self._united = len(self)
        return _met(self, [column.bucket for column in self])

    def remove(self, column: Any) -> None:
        """Remove a column."""
        place = self.index(column)
        del self[place]
        if self.union is None or place < self._united:
            self.disturb()


class WatchedColumns(_Columns):
    """The paged columns with a bucket for slots that hold a time."""

    __slots__ = ("_asked",)

    _asked: list[Any]
    """The columns that are not in the union."""

    def append(self, column: Any) -> None:
        """Add a column."""
        super().append(column)
        self.disturb()

    def remove(self, column: Any) -> None:
        """Remove a column."""
        super().remove(column)
        self.disturb()

    def met_at(self, slot: int, live: int) -> list[Bucket]:
        """Return the buckets that an event of a slot meets: one for all columns that are dense."""
        if not self.events:
            self.events = COUNTED_EVERY
            dense = [column.bucket for column in self if column.held >= DENSE_SHARE * live]
            unites = len(dense) >= UNITED_FROM
            self.union = next(iter(dense)).united(dense, self) if unites else None
            self._asked = [column for column in self if not unites or column.held < DENSE_SHARE * live]
        self.events -= 1
        met = [column.bucket for column in self._asked if column.at(slot) != NEVER]
        return met if self.union is None else [*met, self.union]


class TriggeringStores(dict[Any, Bucket]):
    """The buckets that the next event meets because of memories without keys, by memory."""

    __slots__ = ("events", "union")

    def disturb(self) -> None:
        """Drop the union, as a bucket has changed or others are met."""
        self.events = 0
        self.union: Bucket | None = None

    def met(self) -> Collection[Bucket]:
        """Return the buckets, or one that has all their members."""
        return (self.union,) if self.union is not None else _met(self, self.values())

    def start(self, store: Any, bucket: Bucket) -> None:
        """Have the next events meet the bucket of a memory."""
        self[store] = bucket
        self.disturb()

    def stop(self, store: Any) -> None:
        """Undo `start`, if the memory triggers."""
        if self.pop(store, None) is not None:
            self.disturb()


def _met(triggering: TriggeringColumns | TriggeringStores, buckets: Collection[Bucket]) -> Collection[Bucket]:
    """Return these buckets, or one in their place if enough events have met them."""
    if len(buckets) < UNITED_FROM:
        return buckets
    if triggering.events < CALM_EVENTS:
        triggering.events += 1
        return buckets
    triggering.union = next(iter(buckets)).united(buckets, triggering)
    return (triggering.union,)
