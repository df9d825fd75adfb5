"""The memory of the latest event at which a condition was true."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.evaluation.operators.interface import Found, Memory, Names, Triggers, Writing
from engine.evaluation.paths import Path
from engine.language.condition import Condition, Not


@dataclass(frozen=True)
class Latest(Memory):
    """The stamp of the latest event at which inner was true.

    It suffices for every window, because it stays in each the longest (after Havelund and Rosu, "Synthesizing
    Monitors for Safety Properties", 2002).
    """

    inner: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return (self.inner,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- as for other memories
        return operands[0]

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        return triggers.true(self.inner, path)

    def notable(self, outcome: str) -> tuple[str, str]:
        return outcome, "True"

    def write(self, to: Writing) -> list[str]:
        return [f"if {to.outcome}:", *(f" {line}" for line in to.put(to.stamp))]


def latest_failure(inner: Condition) -> Latest:
    """Return the memory of the latest event at which a condition was false."""
    return Latest(inner.inner if isinstance(inner, Not) else Not(inner))
