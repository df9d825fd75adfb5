"""`count … since`: how many events there were at which a condition was true, after the last reset."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.evaluation.operators.counting.comparison import compared
from engine.evaluation.operators.counting.count import CountOperator, Stamps
from engine.evaluation.operators.interface import Found, Memory, Names, Reading, Triggers, Writing
from engine.evaluation.operators.table import evaluates
from engine.evaluation.paths import Path
from engine.language.condition import Condition, CountSince
from engine.language.forms.form import Content
from engine.language.forms.shapes import call_since


@dataclass(frozen=True)
class StampsSince(Stamps):
    """The same stamps, none of which is before the last event at which reset was true, nor that event's.

    The outcome is False where reset is true, else True where inner is, else None.
    """

    reset: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return self.inner, self.reset

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- as for other memories
        inner, reset = operands
        return f"False if {reset} else True if {inner} else None"

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        resets = triggers.best([triggers.true(self.reset, path), triggers.holding(self, path)])
        return triggers.union([triggers.true(self.inner, path), resets])

    def notable(self, outcome: str) -> tuple[str, str]:
        return Memory.notable(self, outcome)

    def write(self, to: Writing) -> list[str]:
        reset = [f" {line}" for line in to.clear()]
        return [*super().write(to), f"if {to.outcome} is False:", *reset]


@evaluates(
    call_since(
        CountSince,
        "count",
        Content.COUNT,
        text="The number of events at which inner was true after the last event at which reset was true, "
        "compared with a number.",
        is_addition=True,
    )
)
class CountSinceOperator(CountOperator):
    """Compares how many stamps there are, that of the current event included, with a constant."""

    def memory(self, node: CountSince) -> Memory:
        return StampsSince(node.inner, node.reset)

    def verdict(self, node: CountSince, read: Reading) -> str:
        of_none = compared(node.op, node.value, lambda least: str(not least))
        return f"({of_none}) if {read.outcome} is False else {super().verdict(node, read)}"

    def window_us(self, node: CountSince) -> int | None:  # noqa: ARG002 -- none has a window
        return None

    def grows(self, node: CountSince) -> bool | None:  # noqa: ARG002 -- the same
        return None
