"""`previous`: a condition was true at the event directly before the current one."""

from engine.evaluation.operators.interface import Memory, Operator, Reading
from engine.evaluation.operators.latest import Latest
from engine.language.condition import Previous


class PreviousOperator(Operator[Previous]):
    """The latest event at which inner was true is the last event of the slice."""

    def memory(self, node: Previous) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Previous, read: Reading) -> str:  # noqa: ARG002 -- as for other operators
        return f"{read.born} < (entry := {read.entry}) and entry & NUMBER == {read.seen}"

    def window_us(self, node: Previous) -> int | None:  # noqa: ARG002 -- the same
        return None
