"""`count`: how many events there were at which a condition was true."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.operators.counting.comparison import Counting, compared
from engine.evaluation.operators.interface import Memory, MemoryOfTruth, Reading, Writing
from engine.evaluation.operators.table import evaluates
from engine.evaluation.stamps import NUMBER_BITS, time_of
from engine.language.condition import Count
from engine.language.forms.form import Content
from engine.language.forms.shapes import call_of_condition

STEP: Final = 8
"""A list is weighed, and cut if it is too long, each time it has grown by so many stamps. One that is too
long before is cut at once."""

SPARE_MIN: Final = 3
"""A list that is this much, or a quarter, longer than needed is cut. A smaller number would have lists moved
more often, and a larger one would take more memory for each key."""

RECORD_BYTES: Final = 500
"""What a list of up to seven stamps takes."""

STEP_BYTES: Final = 450
"""What a step of stamps takes."""


@dataclass(frozen=True)
class Stamps(MemoryOfTruth):
    """The stamps of the latest events at which inner was true, oldest first: as many as any node needs."""

    is_record = True

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

    def latest(self, entry: list[int]) -> int:
        return entry[-1]

    def bytes_of(self, entry: list[int]) -> int:
        return RECORD_BYTES + STEP_BYTES * (len(entry) // STEP)

    def copy(self, entry: list[int]) -> list[int]:
        return entry[:]

    def parts(self, entry: list[int]) -> tuple[Collection[int]]:
        return (entry,)

    def entry_of(self, *parts: Sequence[int]) -> list[int]:
        return list(parts[0])

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

    There are at least n if the n-th latest is inside.
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
        # The first that is inside the window, or decides.
        place = max(bisect_left(entry, (now_us - window_us) << NUMBER_BITS), len(entry) - node.value - 1)
        return time_of(entry[place]) + window_us if place < len(entry) else None

    def nth_latest(self, entry: list[int], n: int) -> int | None:
        return entry[-n] if len(entry) >= n else None

    def number_since(self, entry: list[int], first: int) -> int:
        return len(entry) - bisect_left(entry, first)
