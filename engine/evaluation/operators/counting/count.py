"""`count` and `count … since`: the number of events at which a condition was true.

Also the base classes of all operators that compare a number over the past.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

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
from engine.evaluation.operators.memories import MemoryOfStamps
from engine.evaluation.operators.table import evaluates
from engine.evaluation.paths import Path
from engine.evaluation.stamps import NUMBER_BITS, time_of
from engine.language.condition import Condition, Count, CountSince
from engine.language.forms.form import Content, call_of_condition, call_since
from engine.language.operators import COMPARED

NodeT = TypeVar("NodeT", bound=Any)
"""An aggregate."""


class Comparing(Operator[NodeT]):
    """Compares a number over the past. No single event settles it."""

    def witness_us(self, node: NodeT, at: Settled) -> int | None:  # noqa: ARG002 -- no event
        return None

    def since_us(self, node: NodeT, at: Settled) -> int | None:
        memory, window_us = self.memory(node), self.window_us(node) or 0
        if not at.entry or memory.latest(at.entry) <= at.born:
            return None
        return min(at.now_us, memory.until_us(at.entry, window_us) - window_us)


class Counting(Comparing[NodeT]):
    """Compares the number of items inside the window. A record has one stamp for each item."""

    def keep(self, node: NodeT) -> int:
        # n stamps show whether there are n, and n + 1 whether there are more.
        value: int = node.value
        return max(1, value if node.op in ("gte", "lt") else value + 1)

    def grows(self, node: NodeT) -> bool | None:
        return {"gt": True, "gte": True, "lt": False, "lte": False}.get(node.op)

    def true_at(self, node: NodeT, triggers: Triggers, path: Path) -> Found:
        of_nothing = COMPARED[node.op](0, node.value)
        return None if of_nothing else self.memory(node).held_after(triggers, path)

    def next_us(self, node: NodeT, entry: Any, now_us: int, to: bool | None) -> int | None:  # noqa: ARG002
        # With more events, the number may fall to the constant when a currently deciding one leaves.
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
        assert oldest is not None, "the latest stamp is inside the window"
        return time_of(oldest) + window_us

    def turns_us(self, node: NodeT, entry: Any) -> Iterable[int]:
        """Return the times at which the number falls to the constant, and below it."""
        window_us = self.window_us(node)
        if window_us is None:
            return []
        stamps = [self.nth_latest(entry, n) for n in (node.value + 1, node.value) if n > 0]
        return [time_of(stamp) + window_us for stamp in stamps if stamp is not None]

    @abstractmethod
    def nth_latest(self, entry: Any, n: int) -> int | None:
        """Return the n-th latest stamp of a record; None if there are fewer."""

    def found(self, node: NodeT, at: Settled) -> int:
        window_us = self.window_us(node)
        since = at.born + 1 if window_us is None else (at.now_us - window_us) << NUMBER_BITS
        return min(self.number_since(at.entry, max(since, at.born + 1)), self.keep(node))

    @abstractmethod
    def number_since(self, entry: Any, first: int) -> int:
        """Return how many stamps of a record are at or after a stamp."""


def compared(op: str, value: int, reached: Any) -> str:
    """Return the comparison of a number; `reached(n)` returns the expression for its being at least n."""
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


STEP: Final = 8
"""The size of a list is updated, and the list truncated if too long, whenever it has grown by this many
stamps. A list that is too long earlier is truncated at once."""

SPARE_MIN: Final = 3
"""A list that is this much, or a quarter, longer than needed is truncated. A smaller number would move lists
more often; a larger one would take more memory for each key."""

RECORD_BYTES: Final = 500
"""The size of a list of up to seven stamps."""

STEP_BYTES: Final = 450
"""The size of a step of stamps."""


@dataclass(frozen=True)
class Stamps(MemoryOfStamps):
    """The stamps of the latest events at which inner was true, oldest first: as many as any node needs."""

    def write(self, to: Writing) -> list[str]:
        long = to.keep + SPARE_MIN
        is_long = f" or len(entry) == {to.constant(long)}" if long < STEP else ""
        return [
            f"if {to.outcome}:",
            f" if (entry := {to.entry}) and {to.lasts('entry[-1]')}:",
            f"  entry.append({to.stamp})",
            f"  if not len(entry) % {STEP}{is_long}: {to.memory}.resized(entry)",
            " else:",
            *(f"  {line}" for line in to.put(f"[{to.stamp}]")),
        ]

    def bytes_of(self, entry: list[int]) -> int:
        return RECORD_BYTES + STEP_BYTES * (len(entry) // STEP)

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + STEP_BYTES * ((keep + max(SPARE_MIN, keep >> 2)) // STEP)

    def resize(self, entry: list[int], keep: int, weigh: Callable[[int], None]) -> None:
        steps = (len(entry) - 1) // STEP
        if len(entry) >= keep + max(SPARE_MIN, keep >> 2):
            del entry[:-keep]
        weigh(STEP_BYTES * (len(entry) // STEP - steps))


@evaluates(
    call_of_condition(
        Count,
        "count",
        Content.COUNT,
        text="The number of events at which inner was true, compared with a number.",
        is_addition=True,
    )
)
class CountOperator(Counting[Any]):
    """Compares how many stamps are inside the window, the current event included, with a constant.

    There are at least n if the n-th latest stamp is inside.
    """

    cost_ns = 200

    def memory(self, node: Any) -> Memory:
        return Stamps(node.inner)

    def verdict(self, node: Any, read: Reading) -> str:
        window_us = self.window_us(node)
        inside = "" if window_us is None else f" >= {read.edge(window_us)}"

        def reached(least: int) -> str:
            if not least:
                return "True"
            number = read.constant(least)
            asked = f"(n := {number} - 1 if {read.outcome} else {number})"
            # Without `n`, `entry[-n]` would be the oldest.
            return f"(not {asked} or len(entry := {read.entry}) >= n and {read.born} < entry[-n]{inside})"

        return compared(node.op, node.value, reached)

    def next_us(self, node: Any, entry: list[int], now_us: int, to: bool | None) -> int | None:  # noqa: ARG002
        window_us = self.window_us(node)
        if window_us is None:
            return None
        # The first stamp that is inside the window, or that decides.
        place = max(bisect_left(entry, (now_us - window_us) << NUMBER_BITS), len(entry) - node.value - 1)
        return time_of(entry[place]) + window_us if place < len(entry) else None

    def nth_latest(self, entry: list[int], n: int) -> int | None:
        return entry[-n] if len(entry) >= n else None

    def number_since(self, entry: list[int], first: int) -> int:
        return len(entry) - bisect_left(entry, first)


@dataclass(frozen=True)
class StampsSince(Stamps):
    """The stamps after the last event at which reset was true.

    The outcome is False if reset is true, otherwise True if inner is true, otherwise None.
    """

    reset: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return self.inner, self.reset

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- the truths suffice
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
    """Compares the number of stamps, that of the current event included, with a constant."""

    def memory(self, node: CountSince) -> Memory:
        return StampsSince(node.inner, node.reset)

    def verdict(self, node: CountSince, read: Reading) -> str:
        of_none = compared(node.op, node.value, lambda least: str(not least))
        return f"({of_none}) if {read.outcome} is False else {super().verdict(node, read)}"

    def grows(self, node: CountSince) -> bool | None:  # noqa: ARG002 -- none has a window
        return None
