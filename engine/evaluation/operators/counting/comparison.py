"""What the operators have in common that compare a number over the past."""

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from engine.evaluation.operators.interface import Found, Memory, Operator, Settled, Triggers
from engine.evaluation.paths import Path
from engine.evaluation.stamps import NUMBER_BITS, time_of

NodeT = TypeVar("NodeT", bound=Any)
"""An aggregate."""


class Comparing(Operator[NodeT]):
    """Compares a number over the past. No single event settles it."""

    def window_us(self, node: NodeT) -> int | None:
        window_us: int | None = node.window_us
        return window_us

    def witness_us(self, node: NodeT, at: Settled) -> int | None:  # noqa: ARG002 -- no event
        return None

    def since_us(self, node: NodeT, at: Settled) -> int | None:
        memory, window_us = self.memory(node), self.window_us(node) or 0
        if not at.entry or memory.latest(at.entry) <= at.born:
            return None
        return min(at.now_us, memory.until_us(at.entry, window_us) - window_us)


class Counting(Comparing[NodeT]):
    """Compares how many of something are inside the window. A record has one stamp for each."""

    def keep(self, node: NodeT) -> int:
        return needed(node.op, node.value)

    def grows(self, node: NodeT) -> bool | None:
        return {"gt": True, "gte": True, "lt": False, "lte": False}.get(node.op)

    def true_at(self, node: NodeT, triggers: Triggers, path: Path) -> Found:
        return some_counted(node.op, node.value, self.memory(node), triggers, path)

    def next_us(self, node: NodeT, entry: Any, now_us: int, to: bool | None) -> int | None:  # noqa: ARG002
        # With more events, the number may fall to the constant when any of those leaves that decide it now.
        window_us = self.window_us(node)
        if window_us is None:
            return None
        least = (now_us - window_us) << NUMBER_BITS
        low, high = 1, node.value + 1
        if (latest := self.nth_latest(entry, 1)) is None or latest < least:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            stamp = self.nth_latest(entry, middle)
            low, high = (middle, high) if stamp is not None and stamp >= least else (low, middle - 1)
        oldest = self.nth_latest(entry, low)
        assert oldest is not None, "it is inside the window"
        return time_of(oldest) + window_us

    def turns_us(self, node: NodeT, entry: Any) -> Iterable[int]:
        """Return when the number falls to the constant, and below it."""
        window_us = self.window_us(node)
        if window_us is None:
            return []
        stamps = [self.nth_latest(entry, n) for n in (node.value + 1, node.value) if n > 0]
        return [time_of(stamp) + window_us for stamp in stamps if stamp is not None]

    @abstractmethod
    def nth_latest(self, entry: Any, n: int) -> int | None:
        """Return the n-th latest stamp of a record, or None if there are fewer."""

    def found(self, node: NodeT, at: Settled) -> int:
        window_us = self.window_us(node)
        since = at.born + 1 if window_us is None else (at.now_us - window_us) << NUMBER_BITS
        return min(self.number_since(at.entry, max(since, at.born + 1)), self.keep(node))

    @abstractmethod
    def number_since(self, entry: Any, first: int) -> int:
        """Return how many stamps of a record are not before a stamp."""


def some_counted(op: str, value: float, memory: Memory, triggers: Triggers, path: Path) -> Found:
    """Return triggers for the events at which a comparison is true, if it is not true of nothing."""
    if COMPARED[op](0, value):
        return None
    return triggers.union([triggers.holding(memory, path), memory.changed_by(triggers, path)])


COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "eq": operator.eq,
    "neq": operator.ne,
}


def needed(op: str, value: int) -> int:
    """Return how many of the latest decide a comparison: n tell if there are n, n + 1 if there are more."""
    return max(1, value if op in ("gte", "lt") else value + 1)


def compared(op: str, value: int, reached: Any) -> str:
    """Return the comparison of a number; `reached(n)` gives the expression that it is at least n."""
    match op:
        case "gte":
            return f"{reached(value)}"
        case "gt":
            return f"{reached(value + 1)}"
        case "lt":
            return f"not {reached(value)}"
        case "lte":
            return f"not {reached(value + 1)}"
        case _:
            exactly = f"({reached(value)} and not {reached(value + 1)})"
            return exactly if op == "eq" else f"not {exactly}"
