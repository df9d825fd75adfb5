"""`previous`: a condition was true at the event directly before the current one."""

from engine.evaluation.operators.interface import Found, Memory, Operator, Reading, Settled, Triggers
from engine.evaluation.operators.table import evaluates
from engine.evaluation.operators.temporal.latest import Latest
from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.condition import Previous
from engine.language.forms.shapes import prefix


@evaluates(prefix(Previous, "previous", is_addition=True, looks_before=True))
class PreviousOperator(Operator[Previous]):
    """The latest event at which inner was true is the last event of the slice."""

    only_next = True

    def memory(self, node: Previous) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Previous, read: Reading) -> str:  # noqa: ARG002 -- as for other operators
        return f"{read.born} < {read.entry} == {read.seen}"

    def true_at(self, node: Previous, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(node), path)

    def window_us(self, node: Previous) -> int | None:  # noqa: ARG002 -- the same
        return None

    def witness_us(self, node: Previous, at: Settled) -> int | None:  # noqa: ARG002 -- the same
        return time_of(at.entry) if at.verdict else None
