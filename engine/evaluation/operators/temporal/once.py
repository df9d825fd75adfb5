"""`once`, `earlier` and `previous`: a condition was true at some event, or at the previous one."""

from typing import Any

from engine.evaluation.operators.interface import (
    Choosing,
    Found,
    Memory,
    Operator,
    Reading,
    Settled,
    Triggers,
)
from engine.evaluation.operators.memories import Latest
from engine.evaluation.operators.table import evaluates
from engine.evaluation.operators.temporal.aged import AgedOperator, Witnesses
from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.condition import Earlier, EarlierWithin, Once, OnceWithin, Previous
from engine.language.forms.form import prefix, prefix_within


class AgedOnceOperator(AgedOperator[OnceWithin | EarlierWithin]):
    """A stored event is between the two bounds. The current event is too young."""

    def memory(self, node: OnceWithin | EarlierWithin) -> Witnesses:
        return Witnesses.of(node.inner, node)


@evaluates(
    prefix(Once, "once"),
    prefix_within(OnceWithin, "once", text="Inner was true at some event no older than the window."),
)
class OnceOperator(Choosing[Any]):
    """True now, or at a stored event inside the window."""

    aged = AgedOnceOperator()

    def memory(self, node: Any) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Any, read: Reading) -> str:
        return f"{read.outcome} or {read.inside(self.window_us(node))}"

    def true_at(self, node: Any, triggers: Triggers, path: Path) -> Found:
        return self.memory(node).held_after(triggers, path)

    def false_at(self, node: Any, triggers: Triggers, path: Path) -> Found:
        return triggers.false(node.inner, path)


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
class EarlierOperator(Choosing[Any]):
    """A stored event is inside the window. The current event does not count."""

    aged = AgedOnceOperator()

    def memory(self, node: Any) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Any, read: Reading) -> str:
        return read.inside(self.window_us(node))

    def true_at(self, node: Any, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(node), path)


@evaluates(prefix(Previous, "previous", is_addition=True, looks_before=True))
class PreviousOperator(Operator[Previous]):
    """The latest event at which inner was true is the last event of the slice."""

    only_next = True

    def memory(self, node: Previous) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Previous, read: Reading) -> str:  # noqa: ARG002 -- the memory suffices
        return f"{read.born} < {read.entry} == {read.seen}"

    def true_at(self, node: Previous, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(node), path)

    def witness_us(self, node: Previous, at: Settled) -> int | None:  # noqa: ARG002 -- the memory suffices
        return time_of(at.entry) if at.verdict else None
