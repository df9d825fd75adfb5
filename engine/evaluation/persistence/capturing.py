"""Captures a detector between two events, so that a thread can pack it while the detector goes on.

Immutable objects (rules, conditions, names, relations) are shared. Slices are copied later; see
`guarding.py`.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from engine.evaluation.firings.feed import Feed
from engine.evaluation.operators.interface import Memory
from engine.evaluation.paths import Path
from engine.evaluation.persistence.figures import Counted, Figures
from engine.evaluation.persistence.guarding import Guard, Kept, copy_of, guard, records_of
from engine.evaluation.relations.stored import StoredRelation
from engine.evaluation.requirements import Births
from engine.evaluation.rule_book.changes.versions import Versions
from engine.evaluation.rule_book.shadows import Shadows
from engine.evaluation.rules import LiveRule, Rule
from engine.evaluation.slices.slices import Slice
from engine.evaluation.timed.queue import Entry
from engine.evaluation.timed.timing import Timing
from engine.language.limits import Limits
from engine.language.nodes import Node


class Saved(Counted, Protocol):
    """The parts of a Detector that a snapshot holds."""

    priority_highest: int
    live: dict[str, LiveRule]
    shadows: Shadows
    stored: dict[str, StoredRelation]
    limits: Limits
    versions: Versions
    timing: Timing
    feed: Feed

    def install(self, rule: Rule, births: Births) -> None:
        """Add a rule whose histories have these births."""

    def settle_rules(self, *, indexed: bool | None = None) -> None:
        """Choose how the rules are evaluated."""


class CapturedMemory(NamedTuple):
    """A memory under a path, named by a node that reads it."""

    memory: Memory
    node: Node
    birth: int
    keep: int


class CapturedSlices(NamedTuple):
    """The slices of a path."""

    path: Path
    width: int
    memories: dict[int, CapturedMemory]
    """By place."""
    root: Slice | None
    """The slice of a path without keys."""
    shards: list[tuple[Guard, Kept] | None]
    """Those with keys. Whoever has packed a shard puts None in its place, which ends its capture."""


class CapturedWatch(NamedTuple):
    """What waits for its time of one timed rule."""

    priority: int
    rest: int
    """The stamp of the time at which all its slices are looked at."""
    several: bool
    """Whether a key is a tuple of parts."""
    shards: list[dict[Hashable, Entry]]
    """Nobody changes them."""
    long: Mapping[Hashable, tuple[Any, ...]]
    """The values of keys of which only a digest is known."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Everything that a snapshot of a detector contains. It can be packed once."""

    marks: Mapping[str, Any]
    rules: list[LiveRule]
    """In order of priority."""
    slices: list[CapturedSlices]
    relations: Mapping[str, StoredRelation]
    """By name. They never change."""
    versions: tuple[list[Any], list[Any]] = ([], [])
    """Those that the rules have, and earlier ones; see `saved.py`."""
    waiting: list[CapturedWatch] = field(default_factory=list)
    """The slices of timed rules that wait for their time."""
    feed: tuple[int, list[bytes]] = (0, [])
    """The number of the newest firing, and the firings that are kept."""
    acted: list[tuple[Guard, Kept] | None] = field(default_factory=list)
    """The entries of rules that act at most once in a time, by shard; see `slices`."""
    last_acted: int = 0
    """The order of the last firing of these rules."""
    figures: Figures | None = None
    """What was counted and measured; only snapshots have it."""


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
                priority, one.rest[0], not one.keys.is_single, one.table.captured(), one.long.copy()
            )
            for priority, one in detector.timing.watches.items()
        ],
        feed=detector.feed.dump(),
        acted=[*guard(detector.at_most_once)],
        last_acted=detector.at_most_once.last,
    )
