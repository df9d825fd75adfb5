"""What a detector has counted and measured since its first event: how often rules fired, and what they cost.

Verdicts do not depend on it, so only snapshots contain it, and two detectors that differ in nothing else have
equal dumps.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.paths import Path
from engine.evaluation.rule_book.verdicts import CountedSince, Verdicts
from engine.evaluation.slices.histories import Histories
from engine.language.nodes import Node


class Counted(Protocol):
    """The parts of a Detector that count and measure."""

    histories: Histories
    verdicts: Verdicts
    rule_set: RuleSet
    at_most_once: AtMostOnce
    behind_us: int | None


class MemoryTime(NamedTuple):
    """How long a memory took, which is named by a node that reads it."""

    node: Node
    path: Path
    birth: int
    time_ns: float


@dataclass(frozen=True, slots=True)
class Figures:
    """A copy of the figures of a detector. Rules are given by priority."""

    since: CountedSince
    fired: Mapping[int, int]
    held_back: Mapping[int, int]
    """How many actions of each rule were held back."""
    samples: int
    """The number of events at which the other figures were measured."""
    ran: Mapping[int, int]
    """At how many of these events a rule was evaluated."""
    rule_ns: Mapping[int, float]
    """The time that a rule took at them, without its memories."""
    memory_ns: list[MemoryTime]
    """The time that the updates of memories took at them."""
    behind_us: int | None = None
    """How far the clock was behind the server's when an event or a tick came last; None if not known."""


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
    """Have a detector that was just loaded count on from the figures."""
    detector.verdicts.restore(figures.since, figures.fired)
    detector.at_most_once.held_back.update(figures.held_back)
    detector.behind_us = figures.behind_us
    memory_ns: Any = defaultdict(float)
    for node, path, birth, time_ns in figures.memory_ns:
        # Nodes of one memory had several before version 11, and some of these had no rule any more.
        with suppress(KeyError):
            memory_ns[detector.histories.of(node, path, birth)] += time_ns
    detector.rule_set.restore_samples(figures.samples, figures.ran, figures.rule_ns, memory_ns)
