"""`once` and `once within`: a condition was true at some event, the current one included."""

from engine.evaluation.operators.interface import Memory, Operator, Reading
from engine.evaluation.operators.latest import Latest
from engine.language.condition import Once, OnceWithin


class OnceOperator(Operator[Once | OnceWithin]):
    """True now, or remembered inside the window."""

    def memory(self, node: Once | OnceWithin) -> Memory:
        return Latest(node.inner)

    def verdict(self, node: Once | OnceWithin, read: Reading) -> str:
        window_us = self.window_us(node)
        inside = "" if window_us is None else f" >= {read.edge(window_us)}"
        return f"{read.outcome} or {read.born} < {read.entry}{inside}"

    def window_us(self, node: Once | OnceWithin) -> int | None:
        return node.window_us if isinstance(node, OnceWithin) else None
