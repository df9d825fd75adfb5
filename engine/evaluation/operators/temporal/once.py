"""`once` and `once within`: a condition was true at some event, the current one included."""

from typing import Any, Final

from engine.evaluation.operators.interface import Choosing, Found, Memory, Operator, Reading, Triggers
from engine.evaluation.operators.table import evaluates
from engine.evaluation.operators.temporal.aged import AgedOperator, Witnesses
from engine.evaluation.operators.temporal.latest import Latest
from engine.evaluation.paths import Path
from engine.language.condition import EarlierWithin, Once, OnceWithin
from engine.language.forms.shapes import prefix, prefix_within


@evaluates(
    prefix(Once, "once"),
    prefix_within(OnceWithin, "once", text="Inner was true at some event no older than the window."),
)
class OnceOperator(Choosing[Once | OnceWithin]):
    """True now, or remembered inside the window."""

    calls = AgedOperator.calls

    def for_node(self, node: Once | OnceWithin) -> Operator[Any]:
        return AGED if isinstance(node, OnceWithin) and node.min_us else self

    def memory(self, node: Once | OnceWithin) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Once | OnceWithin, read: Reading) -> str:
        return f"{read.outcome} or {read.inside(self.window_us(node))}"

    def true_at(self, node: Once | OnceWithin, triggers: Triggers, path: Path) -> Found:
        held = triggers.holding(self.memory(node), path)
        return triggers.union([held, triggers.true(node.inner, path)])

    def false_at(self, node: Once | OnceWithin, triggers: Triggers, path: Path) -> Found:
        return triggers.false(node.inner, path)

    def grows(self, node: Once | OnceWithin) -> bool:  # noqa: ARG002 -- whatever the window
        return True

    def window_us(self, node: Once | OnceWithin) -> int | None:
        return node.window_us if isinstance(node, OnceWithin) else None


class AgedOnceOperator(AgedOperator[OnceWithin | EarlierWithin]):
    """Remembered between the two bounds. The current event is too young."""

    def memory(self, node: OnceWithin | EarlierWithin) -> Witnesses:
        return Witnesses.of(node.inner, node)


AGED: Final = AgedOnceOperator()
