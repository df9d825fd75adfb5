"""`since` and `since within`: right was true at some event, and left at every event after it."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.evaluation.operators.interface import (
    Choosing,
    Found,
    Memory,
    Names,
    Reading,
    Settled,
    Triggers,
    Writing,
)
from engine.evaluation.operators.memories import usual
from engine.evaluation.operators.table import evaluates
from engine.evaluation.operators.temporal.aged import AgedOperator, Witnesses
from engine.evaluation.paths import Path
from engine.language.condition import Condition, Since, SinceWithin
from engine.language.forms.form import infix, infix_within


@dataclass(frozen=True)
class Held(Memory):
    """The stamp of the latest event at which right was true, unless left was false after it.

    The latest suffices: if left held after an earlier one, it also held after this one. The outcome is True
    if right is true, False if both are false, and None if only left is true.
    """

    renews = True
    left: Condition
    right: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return self.left, self.right

    @property
    def by_exception(self) -> bool:
        return usual(self.right) is True

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- the truths suffice
        left, right = operands
        return f"True if {right} else None if {left} else False"

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        if self.by_exception:
            return triggers.false(self.right, path)
        fails = triggers.best([triggers.false(self.left, path), triggers.holding(self, path)])
        return triggers.union([triggers.true(self.right, path), fails])

    def write(self, to: Writing) -> list[str]:
        return [
            f"if {to.outcome} is not None:",
            f" if {to.outcome}:",
            *(f"  {line}" for line in to.put(to.stamp)),
            " else:",
            *(f"  {line}" for line in to.clear()),
        ]


@dataclass(frozen=True)
class HeldWitnesses(Witnesses):
    """The stamps of right, the inner condition, after which left was never false.

    The outcome is `more` if both are true, `only` if only right is true, `none` if neither is, and None if
    only left is true.
    """

    left: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return self.left, self.inner

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- the truths suffice
        left, right = operands
        return f"('more' if {left} else 'only') if {right} else None if {left} else 'none'"

    def notable(self, outcome: str) -> tuple[str, str]:
        return Memory.notable(self, outcome)

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        fails = triggers.best([triggers.false(self.left, path), triggers.holding(self, path)])
        return triggers.union([triggers.true(self.inner, path), fails])

    def write(self, to: Writing) -> list[str]:
        return [
            f"if {to.outcome} == 'more':",
            *self.written_more(to),
            f"elif {to.outcome} is not None:",
            *(f" {line}" for line in to.clear()),
            f" if {to.outcome} == 'only':",
            *(f"  {line}" for line in to.put(f"[{to.stamp}]")),
        ]


class AgedSinceOperator(AgedOperator[SinceWithin]):
    """Left is true now, and right was true between the two bounds. The current event is too young."""

    def memory(self, node: SinceWithin) -> HeldWitnesses:
        return HeldWitnesses.of(node.right, node, left=node.left)

    def verdict(self, node: SinceWithin, read: Reading) -> str:
        return f"{read.outcome} in (None, 'more') and {self.is_there(node, read)}"

    def witness_us(self, node: SinceWithin, at: Settled) -> int | None:
        return at.now_us if at.outcome in {"only", "none"} else super().witness_us(node, at)


@evaluates(
    infix(Since, "since", text="Right was true at some event, and left at every event after it."),
    infix_within(
        SinceWithin,
        "since",
        text="The same as since, with right true no longer ago than the window.",
    ),
)
class SinceOperator(Choosing[Since | SinceWithin]):
    """Right is true now, or it was and left still holds."""

    aged = AgedSinceOperator()

    def memory(self, node: Since | SinceWithin) -> Memory:
        return Held(node.left, node.right)

    def verdict(self, node: Since | SinceWithin, read: Reading) -> str:
        held = read.inside(self.window_us(node))
        return f"{held} if {read.outcome} is None else {read.outcome}"

    def true_at(self, node: Since | SinceWithin, triggers: Triggers, path: Path) -> Found:
        held = triggers.holding(self.memory(node), path)
        return triggers.union([held, triggers.true(node.right, path)])

    def false_at(self, node: Since | SinceWithin, triggers: Triggers, path: Path) -> Found:
        return triggers.false(node.right, path)

    def witness_us(self, node: Since | SinceWithin, at: Settled) -> int | None:
        return at.now_us if at.outcome is False else super().witness_us(node, at)
