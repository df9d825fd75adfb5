"""`earlier` and `earlier within`: a condition was true at some event before the current one."""

from typing import Any

from engine.evaluation.operators.interface import Choosing, Found, Memory, Operator, Reading, Triggers
from engine.evaluation.operators.table import evaluates
from engine.evaluation.operators.temporal.aged import AgedOperator
from engine.evaluation.operators.temporal.latest import Latest
from engine.evaluation.operators.temporal.once import AGED
from engine.evaluation.paths import Path
from engine.language.condition import Earlier, EarlierWithin
from engine.language.forms.shapes import prefix, prefix_within


@evaluates(
    prefix(Earlier, "earlier", is_addition=True, looks_before=True),
    prefix_within(
        EarlierWithin,
        "earlier",
        text="Inner was true at some event before now, no older than the window.",
        is_addition=True,
        looks_before=True,
    ),
)
class EarlierOperator(Choosing[Earlier | EarlierWithin]):
    """Remembered inside the window, whatever the current event is."""

    calls = AgedOperator.calls

    def for_node(self, node: Earlier | EarlierWithin) -> Operator[Any]:
        return AGED if isinstance(node, EarlierWithin) and node.min_us else self

    def memory(self, node: Earlier | EarlierWithin) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Earlier | EarlierWithin, read: Reading) -> str:
        return read.inside(self.window_us(node))

    def true_at(self, node: Earlier | EarlierWithin, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(node), path)

    def grows(self, node: Earlier | EarlierWithin) -> bool:  # noqa: ARG002 -- whatever the window
        return True

    def window_us(self, node: Earlier | EarlierWithin) -> int | None:
        return node.window_us if isinstance(node, EarlierWithin) else None
