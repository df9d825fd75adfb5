"""`since` and `since within`: right was true at some event, and left at every event after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.evaluation.operators.interface import (
    Found,
    Memory,
    Names,
    Operator,
    Reading,
    Settled,
    Triggers,
    Writing,
)
from engine.evaluation.operators.table import evaluates
from engine.evaluation.operators.usual import usual
from engine.evaluation.paths import Path
from engine.language.condition import Condition, Since, SinceWithin
from engine.language.forms.shapes import infix, infix_within


@dataclass(frozen=True)
class Held(Memory):
    """The stamp of the latest event at which right was true, unless left has failed after it.

    The latest suffices: if left held after an earlier one, it also held after this one. The outcome is True
    where right is true, False where both are false, and None where only left is true.
    """

    left: Condition
    right: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return self.left, self.right

    @property
    def by_exception(self) -> bool:
        return usual(self.right) is True

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- as for other memories
        left, right = operands
        return f"True if {right} else None if {left} else False"

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        if self.by_exception:
            return triggers.false(self.right, path)
        fails = triggers.best([triggers.false(self.left, path), triggers.holding(self, path)])
        return triggers.union([triggers.true(self.right, path), fails])

    def write(self, to: Writing) -> list[str]:
        return [
            f"if {to.outcome}:",
            *(f" {line}" for line in to.put(to.stamp)),
            f"elif {to.outcome} is False:",
            *(f" {line}" for line in to.clear()),
        ]


@evaluates(
    infix(Since, "since", text="Right was true at some event, and left at every event after it."),
    infix_within(
        SinceWithin,
        "since",
        text="The same as since, with right true no longer ago than the window.",
    ),
)
class SinceOperator(Operator[Since | SinceWithin]):
    """Right is true now, or it was and left still holds."""

    def memory(self, node: Since | SinceWithin) -> Memory:
        return Held(node.left, node.right)

    def verdict(self, node: Since | SinceWithin, read: Reading) -> str:
        window_us = self.window_us(node)
        inside = "" if window_us is None else f" >= {read.edge(window_us)}"
        held = f"{read.born} < {read.entry}{inside}"
        return f"{held} if {read.outcome} is None else {read.outcome}"

    def true_at(self, node: Since | SinceWithin, triggers: Triggers, path: Path) -> Found:
        held = triggers.holding(self.memory(node), path)
        return triggers.union([held, triggers.true(node.right, path)])

    def false_at(self, node: Since | SinceWithin, triggers: Triggers, path: Path) -> Found:
        return triggers.false(node.right, path)

    def grows(self, node: Since | SinceWithin) -> bool:  # noqa: ARG002 -- whatever the window
        return True

    def window_us(self, node: Since | SinceWithin) -> int | None:
        return node.window_us if isinstance(node, SinceWithin) else None

    def witness_us(self, node: Since | SinceWithin, at: Settled) -> int | None:
        return at.now_us if at.outcome is False else super().witness_us(node, at)
