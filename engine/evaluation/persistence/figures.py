"""What a detector has counted and measured since its first event: how often rules fired, and what they cost.

Verdicts do not depend on it, so only snapshots contain it, and two detectors that differ in nothing else have
equal dumps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.rule_book.verdicts import CountedSince, Verdicts
from engine.evaluation.state.node_names import NodeName


class Counted(Protocol):
    """The parts of a Detector that count and measure."""

    verdicts: Verdicts
    rule_set: RuleSet


@dataclass(frozen=True, slots=True)
class Figures:
    """A copy of the figures of a detector. Rules are given by priority."""

    since: CountedSince
    fired: Mapping[int, int]
    samples: int
    """The number of events at which the other figures were measured."""
    ran: Mapping[int, int]
    """At how many of these events a rule was evaluated."""
    rule_ns: Mapping[int, float]
    """The time that a rule took at them, without its memories."""
    memory_ns: Mapping[NodeName, float]
    """The time that the updates of a memory took at them."""


def figures_of(detector: Counted) -> Figures:
    """Copy the figures of a detector, between two events."""
    samples = detector.rule_set.samples
    return Figures(
        detector.verdicts.since,
        detector.verdicts.counts(),
        samples.events,
        # Memories have negative numbers, which differ between activations.
        {member: times for member, times in samples.ran.items() if member > 0},
        {member: time_ns for member, time_ns in samples.time_ns.items() if member > 0},
        detector.rule_set.memory_ns(),
    )


def restore_figures(detector: Counted, figures: Figures) -> None:
    """Have a detector that was just loaded count on from the figures."""
    detector.verdicts.restore(figures.since, figures.fired)
    detector.rule_set.restore_samples(figures.samples, figures.ran, figures.rule_ns, figures.memory_ns)
