"""`historically` and `historically for`: a condition was true at every event, or for at least a while."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.operators.interface import (
    Choosing,
    Found,
    Memory,
    Operator,
    Reading,
    Settled,
    Triggers,
    Writing,
)
from engine.evaluation.operators.memories import Latest, MemoryOfTruth, negated, usual
from engine.evaluation.operators.table import evaluates
from engine.evaluation.operators.temporal.aged import AgedOperator, Witnesses
from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.condition import Historically, HistoricallyFor
from engine.language.forms.form import prefix, prefix_for


@dataclass(frozen=True)
class Run(MemoryOfTruth):
    """The stamp of the first event of the current run of events at which inner is true.

    Without an entry, there is no run: inner was false at the last event, or there was none.
    """

    splits = False
    lasting = "outcome"

    @property
    def begins(self) -> bool:
        return usual(self.inner) is True

    @property
    def idle(self) -> str:
        return str(self.begins)

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        if self.begins:
            return triggers.false(self.inner, path)
        return triggers.union([triggers.true(self.inner, path), triggers.holding(self, path)])

    def notable(self, outcome: str) -> tuple[str, str]:
        return (f"not {outcome}", "False") if self.begins else ("True", outcome)

    def write(self, to: Writing) -> list[str]:
        return [
            f"if not {to.outcome}:",
            *(f" {line}" for line in to.clear()),
            f"elif {to.entry} == NEVER:",
            *(f" {line}" for line in to.put(to.stamp)),
        ]


class HistoricallyForStrongOperator(Operator[HistoricallyFor]):
    """True now, and the run began before the window, or now if the window has length 0."""

    def memory(self, node: HistoricallyFor) -> Memory:
        return Run(node.inner)

    def verdict(self, node: HistoricallyFor, read: Reading) -> str:
        if not node.window_us:
            return read.outcome
        # A run that begins with any event of the window's first microsecond is long enough.
        return f"{read.outcome} and NEVER < {read.entry} < {read.edge(node.window_us - 1)}"

    def true_at(self, node: HistoricallyFor, triggers: Triggers, path: Path) -> Found:
        return triggers.true(node.inner, path)

    def window_us(self, node: HistoricallyFor) -> int | None:
        # Longer runs satisfy the window, too. For a window of length 0, no run matters.
        return None if node.window_us else -1

    def soonest_us(self, node: HistoricallyFor) -> int | None:
        return node.window_us or None

    def drift(self, node: HistoricallyFor) -> bool:  # noqa: ARG002 -- a run only becomes longer
        return True

    def turns_us(self, node: HistoricallyFor, entry: int) -> Iterable[int]:
        return (time_of(entry) + node.window_us - 1,)

    def witness_us(self, node: HistoricallyFor, at: Settled) -> int | None:
        # The event that ended or began the run.
        return time_of(at.entry) if at.outcome and node.window_us else at.now_us


class AgedHistoricallyOperator(AgedOperator[HistoricallyFor]):
    """No stored counterexample is between the two bounds. The current event is too young to be one."""

    def memory(self, node: HistoricallyFor) -> Witnesses:
        return Witnesses.of(negated(node.inner), node)

    def verdict(self, node: HistoricallyFor, read: Reading) -> str:
        return f"not ({self.is_there(node, read)})"

    def true_at(self, node: HistoricallyFor, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- all
        return None

    def false_at(self, node: HistoricallyFor, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(node), path)


@evaluates(
    prefix(Historically, "historically"),
    prefix_for(
        HistoricallyFor,
        "historically",
        text="Inner was true at every event within the window; with `strong`, since an event at least that "
        "old.",
    ),
)
class HistoricallyOperator(Choosing[Historically | HistoricallyFor]):
    """Not false now, and no stored counterexample is inside the window."""

    aged = AgedHistoricallyOperator()
    strong: Final = HistoricallyForStrongOperator()

    def for_node(self, node: Historically | HistoricallyFor) -> Operator[Any]:
        is_strong = isinstance(node, HistoricallyFor) and node.boundary == "strong"
        return self.strong if is_strong else super().for_node(node)

    def memory(self, node: Historically | HistoricallyFor) -> Memory:
        return Latest(negated(node.inner))

    def verdict(self, node: Historically | HistoricallyFor, read: Reading) -> str:
        return f"not ({read.outcome} or {read.inside(self.window_us(node))})"

    def true_at(self, node: Historically | HistoricallyFor, triggers: Triggers, path: Path) -> Found:
        return triggers.true(node.inner, path)

    def false_at(self, node: Historically | HistoricallyFor, triggers: Triggers, path: Path) -> Found:
        return self.memory(node).held_after(triggers, path)

    def grows(self, node: Historically | HistoricallyFor) -> bool:  # noqa: ARG002 -- for all windows
        return False
