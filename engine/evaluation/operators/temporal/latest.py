"""The memory of the latest event at which a condition was true."""

from dataclasses import dataclass

from engine.evaluation.operators.interface import Found, MemoryOfTruth, Triggers, Writing
from engine.evaluation.operators.usual import usual
from engine.evaluation.paths import Path
from engine.language.condition import Condition, Not


@dataclass(frozen=True)
class Latest(MemoryOfTruth):
    """The stamp of the latest event at which inner was true.

    It suffices for every window, because it stays in each the longest (after Havelund and Rosu, "Synthesizing
    Monitors for Safety Properties", 2002).
    """

    renews = True

    @property
    def by_exception(self) -> bool:
        return usual(self.inner) is True

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        return triggers.false(self.inner, path) if self.by_exception else triggers.true(self.inner, path)

    def write(self, to: Writing) -> list[str]:
        return [f"if {to.outcome}:", *(f" {line}" for line in to.put(to.stamp))]


def latest_failure(inner: Condition) -> Latest:
    """Return the memory of the latest event at which a condition was false."""
    return Latest(negated(inner))


def negated(inner: Condition) -> Condition:
    """Return the condition that is true where another is false."""
    return inner.inner if isinstance(inner, Not) else Not(inner)
