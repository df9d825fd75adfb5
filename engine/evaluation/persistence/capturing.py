"""Captures a detector between two events, so that a thread can pack it while the detector continues.

Immutable objects (rules, conditions, names, relations) are shared. Slices are copied later: a capture puts a
guard in place of each shard. An event reaches a slice through the guard, which first keeps a copy for the
capture. The packing thread has the other slices copied. The first copy wins: an event's copy is made before
its change, and a later copy by the thread is discarded. So neither waits for the other.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from weakref import ref

from engine.evaluation.firings.feed import Feed
from engine.evaluation.operators.interface import Memory
from engine.evaluation.paths import Path
from engine.evaluation.persistence.figures import Counted, Figures
from engine.evaluation.relations.stored import StoredRelation
from engine.evaluation.requirements import Births
from engine.evaluation.rule_book.changes.versions import Versions
from engine.evaluation.rule_book.shadows import Shadows
from engine.evaluation.rules import LiveRule, Rule
from engine.evaluation.slices.slices import MORE, Remembered, Slice
from engine.evaluation.timed.table import Entry
from engine.evaluation.timed.timing import Timing
from engine.language.limits import Limits
from engine.language.nodes import Node

# -- guards -------------------------------------------------------------------------------------------------


class Guarded(Protocol):
    """Slices in shards, which can be captured."""

    shards: list[MutableMapping[Hashable, Slice]]

    @property
    def memories(self) -> Mapping[int, Remembered]:
        """The memories that have places in them."""


class Kept(dict[Hashable, Slice | None]):
    """Copies of the slices of one shard at its capture; None for keys that came later.

    The guard keeps copies as long as this object exists.
    """

    __slots__ = ("__weakref__",)


class Guard(MutableMapping[Hashable, Slice]):
    """Stands in place of a shard. At its first use after the last capture has ended, it removes itself.

    Only the evaluating thread uses it as a mapping.
    """

    __slots__ = ("_captures", "_number", "_records", "_shard", "_shards")

    def __init__(self, slices: Guarded, number: int) -> None:
        self._shards, self._number = slices.shards, number
        self._shard = slices.shards[number]
        self._captures: tuple[ref[Kept], ...] = ()
        self._records: list[int] = []

    def begin(self, records: list[int]) -> Kept:
        """Begin a capture: keep the present slices, which have records in these places.

        Memories that are added or removed later change all slices, so copies exist by then.
        """
        kept, self._records = Kept(), records
        self._captures = (*self._captures, ref(kept))
        return kept

    def complete(self, kept: Kept) -> Iterator[None]:
        """Keep every slice of a capture, one at a time. Called by the packing thread."""
        # Listing a dict is atomic.
        for key in list(self._shard.keys()):
            if key not in kept:
                slice_ = self._shard.get(key)
                # If its key was dropped in the meantime, the slice was kept before.
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
        """Return the slice of a key, or the default."""
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
    """Put guards in place of the shards that have slices. Return what they keep for this capture."""
    guards, records = [], records_of(slices)
    for number, shard in enumerate(slices.shards):
        if shard:
            if not isinstance(shard, Guard):
                shard = slices.shards[number] = Guard(slices, number)  # noqa: PLW2901 -- in its place
            guards.append((shard, shard.begin(records)))
    return guards


def copy_of(slice_: Slice, records: Iterable[int]) -> Slice:
    """Return a copy that shares no mutable objects. In the list, records are in these places."""
    copied = slice_[:]
    for place in records:
        if copied[place]:
            copied[place] = copied[place].copy()
    if copied[MORE] is not None:
        # A stamp is a number, and a record has a `copy` method.
        more = copied[MORE].copy()
        copied[MORE] = {at: one if type(one) is int else one.copy() for at, one in more.items()}
    return copied


def records_of(slices: Guarded) -> list[int]:
    """Return the places of records in lists."""
    return [place for place, one in slices.memories.items() if one.has_place and one.memory.is_record]


# -- captures -----------------------------------------------------------------------------------------------


class Saved(Counted, Protocol):
    """The parts of a Detector that a snapshot contains."""

    priority_highest: int
    live: dict[str, LiveRule]
    shadows: Shadows
    stored: dict[str, StoredRelation]
    limits: Limits
    versions: Versions
    timing: Timing
    feed: Feed

    def install(self, rule: Rule, births: Births) -> None:
        """Add a rule with the births of its histories."""

    def settle_rules(self, *, indexed: bool | None = None) -> None:
        """Choose how the rules are evaluated."""


class CapturedMemory(NamedTuple):
    """A memory under a path, identified by a node that reads it."""

    memory: Memory
    node: Node
    birth: int
    keep: int


class CapturedSlices(NamedTuple):
    """The slices of a path."""

    path: Path
    width: int
    memories: dict[int, CapturedMemory]
    """The memories by place."""
    root: Slice | None
    """The slice of a path without keys."""
    shards: list[tuple[Guard, Kept] | None]
    """The shards of a path with keys. Packing a shard replaces it by None, which ends its capture."""


class CapturedWatch(NamedTuple):
    """The waiting slices of one timed rule."""

    priority: int
    rest: int
    """The stamp of the time at which all its slices are checked."""
    is_late: bool
    several: bool
    """Whether a key is a tuple of parts."""
    shards: list[dict[Hashable, Entry]]
    """Nobody changes them."""
    long: Mapping[Hashable, tuple[Any, ...]]
    """The values of keys with long texts, which the keys have only as digests."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Everything that a snapshot of a detector contains. It can be packed once."""

    marks: Mapping[str, Any]
    rules: list[LiveRule]
    """In order of priority."""
    slices: list[CapturedSlices]
    relations: Mapping[str, StoredRelation]
    """By name. They are immutable."""
    versions: tuple[list[Any], list[Any]] = ([], [])
    """The current versions of the rules, and earlier ones; see `saved.py`."""
    waiting: list[CapturedWatch] = field(default_factory=list)
    """The waiting slices of timed rules."""
    feed: tuple[int, list[bytes]] = (0, [])
    """The number of the newest firing, and the firings in the feed."""
    acted: list[tuple[Guard, Kept] | None] = field(default_factory=list)
    """The entries of rules that act at most once in some time, by shard, like `CapturedSlices.shards`."""
    last_acted: int = 0
    """The serial number of the last firing of these rules."""
    figures: Figures | None = None
    """Counts and measurements; only in snapshots."""


def capture(detector: Saved) -> Captured:
    """Capture a detector between two events. A million keys take about a millisecond."""
    histories = detector.histories
    memories: dict[Path, dict[int, CapturedMemory]] = {path: {} for path in histories.slices}
    for name, remembered in histories.memories.items():
        memories[name.path][remembered.place] = CapturedMemory(
            name.memory, remembered.node, name.birth, remembered.keep
        )
    return Captured(
        marks={
            "clock_us": detector.clock_us,
            "events_seen": detector.events_seen,
            "priority_highest": detector.priority_highest,
            "indexed": detector.rule_set.indexed,
            **(detector.shadows.dump() if detector.shadows.ids else {}),
        },
        rules=list(detector.live.values()),
        slices=[
            CapturedSlices(
                path,
                len(slices.blank),
                memories[path],
                None if path else copy_of(slices.root, records_of(slices)),
                [*guard(slices)],
            )
            for path, slices in histories.slices.items()
        ],
        relations=detector.stored.copy(),
        versions=detector.versions.dump(),
        waiting=[
            CapturedWatch(
                priority,
                one.rest[0],
                one.is_late,
                not one.keys.is_single,
                one.table.captured(),
                one.long.copy(),
            )
            for priority, one in detector.timing.watches.items()
        ],
        feed=detector.feed.dump(),
        acted=[*guard(detector.at_most_once)],
        last_acted=detector.at_most_once.last,
    )
