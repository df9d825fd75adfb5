"""What a detector has counted and measured since its first event: firings of rules, and their costs.

Verdicts do not depend on these figures. Only snapshots contain them, so detectors that differ in nothing else
have equal dumps.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.paths import Path
from engine.evaluation.persistence.columns import (
    numbers_packed,
    numbers_unpacked,
    packer,
    part_bytes,
    path_document,
    stored_part,
    stored_path,
)
from engine.evaluation.rule_book.verdicts import CountedSince, VerdictChecksum
from engine.evaluation.slices.histories import Histories
from engine.language.nodes import Node


class Counted(Protocol):
    """The parts of a Detector that count and measure."""

    clock_us: int | None
    events_seen: int
    histories: Histories
    verdicts: VerdictChecksum
    rule_set: RuleSet
    at_most_once: AtMostOnce
    behind_us: int | None


class MemoryTime(NamedTuple):
    """The time that a memory took; it is identified by a node that reads it."""

    node: Node
    path: Path
    birth: int
    time_ns: float


@dataclass(frozen=True, slots=True)
class Figures:
    """A copy of the figures of a detector. Rules are identified by priority."""

    since: CountedSince
    fired: Mapping[int, int]
    held_back: Mapping[int, int]
    """The number of suppressed actions of each rule."""
    samples: int
    """The number of events at which the other figures were sampled."""
    ran: Mapping[int, int]
    """The number of these events at which each rule was evaluated."""
    rule_ns: Mapping[int, float]
    """The time that each rule took at them, without its memories."""
    memory_ns: list[MemoryTime]
    """The time that the updates of memories took at them."""
    behind_us: int | None = None
    """How far the clock was behind the server's at the last event or tick; None if unknown."""


def figures_of(detector: Counted) -> Figures:
    """Copy the figures of a detector, between two events."""
    samples, memory_ns = detector.rule_set.samples, detector.rule_set.memory_ns()
    return Figures(
        detector.verdicts.since,
        detector.verdicts.counts(),
        dict(detector.at_most_once.held_back),
        samples.events,
        # Memories have negative numbers, which differ between activations.
        {member: times for member, times in samples.ran.items() if member > 0},
        {member: time_ns for member, time_ns in samples.time_ns.items() if member > 0},
        [
            MemoryTime(remembered.node, name.path, name.birth, memory_ns[remembered])
            for name, remembered in (detector.histories.memories.items() if memory_ns else ())
            if remembered in memory_ns
        ],
        detector.behind_us,
    )


def restore_figures(detector: Counted, figures: Figures) -> None:
    """Make a newly loaded detector continue from the figures."""
    detector.verdicts.restore(figures.since, figures.fired)
    detector.at_most_once.held_back.update(figures.held_back)
    detector.behind_us = figures.behind_us
    memory_ns: Any = defaultdict(float)
    for node, path, birth, time_ns in figures.memory_ns:
        # Before version 11, a memory had several nodes, and some of them belong to no rule any more.
        with suppress(KeyError):
            memory_ns[detector.histories.of(node, path, birth)] += time_ns
    detector.rule_set.restore_samples(figures.samples, figures.ran, figures.rule_ns, memory_ns)


# -- in a saved state ---------------------------------------------------------------------------------------


def figures_packed(figures: Figures) -> Iterator[bytes]:
    """Yield the bytes of the figures in a saved state; see `saved.py`."""
    pack = packer()
    yield pack.pack_map_header(7)
    yield pack.pack("behind_us") + pack.pack(figures.behind_us)
    yield pack.pack("since") + pack.pack([*figures.since])
    yield pack.pack("fired") + pack.pack(_columns(figures.fired))
    yield pack.pack("held_back") + pack.pack(_columns(figures.held_back))
    yield pack.pack("ran") + pack.pack([figures.samples, *_columns(figures.ran)])
    times = array("d", figures.rule_ns.values())
    yield pack.pack("rule_ns") + pack.pack([numbers_packed(figures.rule_ns), numbers_packed(times)])
    yield pack.pack("memory_ns") + pack.pack_array_header(len(figures.memory_ns))
    for node, path, birth, time_ns in figures.memory_ns:
        yield pack.pack([part_bytes(node), path_document(path), birth, time_ns])


def _columns(entries: Mapping[int, int]) -> list[bytes]:
    return [numbers_packed(entries), numbers_packed(entries.values())]


def load_figures(detector: Counted, document: Any) -> None:
    """Make a loaded detector continue from the figures in its document; start now if it has none."""
    stored = document.get("figures")
    if stored is None:
        since = (
            CountedSince(detector.events_seen, detector.clock_us) if detector.events_seen else CountedSince()
        )
        detector.verdicts.restore(since, {})
        return
    samples, *ran = stored["ran"]
    priorities, times = stored["rule_ns"]
    rule_ns = zip(numbers_unpacked(priorities), numbers_unpacked(times, "d"), strict=True)
    memory_ns = [
        MemoryTime(stored_part(node), stored_path(path), birth, time_ns)
        for node, path, birth, time_ns in stored["memory_ns"]
    ]
    since = CountedSince(*stored["since"])
    behind_us = stored.get("behind_us")
    fired, held_back = _entries(stored["fired"]), _entries(stored.get("held_back", (b"", b"")))
    figures = Figures(since, fired, held_back, samples, _entries(ran), dict(rule_ns), memory_ns, behind_us)
    restore_figures(detector, figures)


def _entries(saved: list[bytes]) -> dict[int, int]:
    return dict(zip(*map(numbers_unpacked, saved), strict=True))
