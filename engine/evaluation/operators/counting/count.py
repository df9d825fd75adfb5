"""`count`: how many events there were at which a condition was true."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.operators.interface import (
    Found,
    Memory,
    MemoryOfTruth,
    Operator,
    Reading,
    Triggers,
    Writing,
)
from engine.evaluation.operators.table import evaluates
from engine.evaluation.paths import Path
from engine.language.condition import Count
from engine.language.forms import Content, call_of_condition

SPARE_MIN: Final = 8
"""A list of stamps is cut when it is this much, or a quarter, longer than needed: it is moved then."""

RECORD_BYTES: Final = 500
"""What a list of up to seven stamps takes."""

STEP_BYTES: Final = 450
"""What eight stamps take."""


@dataclass(frozen=True)
class Stamps(MemoryOfTruth):
    """The stamps of the latest events at which inner was true, oldest first: as many as any node needs."""

    is_record = True

    def write(self, to: Writing) -> list[str]:
        return [
            f"if {to.outcome}:",
            f" if (entry := {to.entry}):",
            f"  entry.append({to.stamp})",
            f"  if not len(entry) & 7: {to.memory}.resized(entry)",
            " else:",
            *(f"  {line}" for line in to.put(f"[{to.stamp}]")),
        ]

    def latest(self, entry: list[int]) -> int:
        return entry[-1]

    def bytes_of(self, entry: list[int]) -> int:
        return RECORD_BYTES + STEP_BYTES * (len(entry) >> 3)

    def copy(self, entry: list[int]) -> list[int]:
        return entry[:]

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + STEP_BYTES * (keep + max(SPARE_MIN, keep >> 2) >> 3)

    def resize(self, entry: list[int], keep: int, weigh: Callable[[int], None]) -> None:
        steps = (len(entry) >> 3) - 1
        if len(entry) >= keep + max(SPARE_MIN, keep >> 2):
            del entry[:-keep]
        weigh(STEP_BYTES * ((len(entry) >> 3) - steps))


@evaluates(
    call_of_condition(
        Count,
        "count",
        Content.COUNT,
        text="The number of events at which inner was true, compared with a number.",
        is_addition=True,
    )
)
class CountOperator(Operator[Count]):
    """Compares how many stamps are inside the window, the current event included, with a constant.

    There are at least n if the n-th latest is inside.
    """

    cost_ns = 200

    def memory(self, node: Count) -> Memory:
        return Stamps(node.inner)

    def verdict(self, node: Count, read: Reading) -> str:
        inside = "" if node.window_us is None else f" >= {read.edge(node.window_us)}"

        def reached(least: int) -> str:
            if not least:
                return "True"
            number = read.constant(least)
            asked = f"(n := {number} - 1 if {read.outcome} else {number})"
            # Without `n`, `entry[-n]` would be the oldest.
            return f"(not {asked} or len(entry := {read.entry}) >= n and {read.born} < entry[-n]{inside})"

        return compared(node.op, node.value, reached)

    def true_at(self, node: Count, triggers: Triggers, path: Path) -> Found:
        return some_counted(node.op, node.value, self.memory(node), triggers, path)

    def window_us(self, node: Count) -> int | None:
        return node.window_us

    def keep(self, node: Count) -> int:
        return needed(node.op, node.value)


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
