"""The memory of the latest event at which a condition was true."""

from dataclasses import dataclass

from engine.evaluation.operators.interface import MemoryOfTruth, Writing
from engine.language.condition import Condition, Not


@dataclass(frozen=True)
class Latest(MemoryOfTruth):
    """The stamp of the latest event at which inner was true.

    It suffices for every window, because it stays in each the longest (after Havelund and Rosu, "Synthesizing
    Monitors for Safety Properties", 2002).
    """

    def write(self, to: Writing) -> list[str]:
        return [f"if {to.outcome}:", *(f" {line}" for line in to.put(to.stamp))]


def latest_failure(inner: Condition) -> Latest:
    """Return the memory of the latest event at which a condition was false."""
    return Latest(inner.inner if isinstance(inner, Not) else Not(inner))
